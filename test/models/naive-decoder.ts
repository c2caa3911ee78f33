// Reference decoder over a GGUF file: plain loops in double over dequantised tensors, one prompt, no cache, no graph, no ONNX
// Runtime. It rotates q and k as the file stores them (neighbouring rotary pairs for llama, half layout for qwen2), so it
// also checks that import reorders llama's rows.
import { dequantise } from "../../models/quantisation/dequantise.ts";
import type { Gguf } from "../../models/readers/gguf.ts";

/** Logits (vocab) after every token of the prompt. */
export function naiveLogits(gguf: Gguf, tokens: readonly number[]): number[][] {
  const family = String(gguf.metadata.get("general.architecture"));
  const number = (key: string) => Number(gguf.metadata.get(`${family}.${key}`));
  const tensor = (name: string): Float32Array | undefined => {
    const found = gguf.tensors.get(name);
    if (!found) return undefined;
    const count = found.dims.reduce((product, size) => product * size, 1);
    return dequantise(found.type, gguf.read(found, 0, found.bytes), count);
  };
  const hidden = number("embedding_length");
  const headDim = number("attention.key_length");
  const heads = number("attention.head_count");
  const kvHeads = number("attention.head_count_kv");
  const embedding = tensor("token_embd.weight")!;
  const norm = (x: number[], gain: Float32Array): number[] => {
    const square = x.reduce((sum, value) => sum + value * value, 0) / x.length;
    const scale = 1 / Math.sqrt(square + number("attention.layer_norm_rms_epsilon"));
    return x.map((value, i) => value * scale * gain[i]!);
  };
  const rotate = (x: number[], position: number): number[] => {
    const rotated = [...x];
    for (let start = 0; start < x.length; start += headDim)
      for (let i = 0; i < headDim / 2; i++) {
        const [a, b] = family === "llama" ? [2 * i, 2 * i + 1] : [i, i + headDim / 2];
        const angle = position * number("rope.freq_base") ** ((-2 * i) / headDim);
        rotated[start + a] = x[start + a]! * Math.cos(angle) - x[start + b]! * Math.sin(angle);
        rotated[start + b] = x[start + a]! * Math.sin(angle) + x[start + b]! * Math.cos(angle);
      }
    return rotated;
  };

  let rows = tokens.map((id) => [...embedding.subarray(id * hidden, (id + 1) * hidden)]);
  for (let layer = 0; layer < number("block_count"); layer++) {
    const w = (name: string) => tensor(`blk.${layer}.${name}`);
    const normed = rows.map((x) => norm(x, w("attn_norm.weight")!));
    const project = (name: string) => normed.map((x) => multiply(w(`${name}.weight`)!, x, w(`${name}.bias`)));
    const q = project("attn_q").map(rotate);
    const k = project("attn_k").map(rotate);
    const attended = attend(q, k, project("attn_v"), { heads, kvHeads, headDim });
    rows = rows.map((x, t) => add(x, multiply(w("attn_output.weight")!, attended[t]!)));
    rows = rows.map((x) => {
      const middle = norm(x, w("ffn_norm.weight")!);
      const up = multiply(w("ffn_up.weight")!, middle);
      const gated = multiply(w("ffn_gate.weight")!, middle).map((g, i) => (g / (1 + Math.exp(-g))) * up[i]!);
      return add(x, multiply(w("ffn_down.weight")!, gated));
    });
  }
  const head = tensor("output.weight") ?? embedding;
  return rows.map((x) => multiply(head, norm(x, tensor("output_norm.weight")!)));
}

/** W x + bias; W (rows, x.length). */
function multiply(w: Float32Array, x: readonly number[], bias?: Float32Array): number[] {
  return Array.from({ length: w.length / x.length }, (_, row) => {
    let sum = bias?.[row] ?? 0;
    for (let i = 0; i < x.length; i++) sum += w[row * x.length + i]! * x[i]!;
    return sum;
  });
}

function add(a: readonly number[], b: readonly number[]): number[] {
  return a.map((value, i) => value + b[i]!);
}

/** Causal attention; q rows (heads * headDim), k and v rows (kvHeads * headDim). */
function attend(
  q: readonly number[][],
  k: readonly number[][],
  v: readonly number[][],
  shape: { heads: number; kvHeads: number; headDim: number },
): number[][] {
  const { heads, kvHeads, headDim } = shape;
  return q.map((row, m) => {
    const out = new Array<number>(row.length).fill(0);
    for (let head = 0; head < heads; head++) {
      const from = head * headDim;
      const kvFrom = Math.floor(head / (heads / kvHeads)) * headDim;
      const weights = k.slice(0, m + 1).map((key) => {
        let score = 0;
        for (let d = 0; d < headDim; d++) score += row[from + d]! * key[kvFrom + d]!;
        return Math.exp(score / Math.sqrt(headDim));
      });
      const total = weights.reduce((sum, weight) => sum + weight, 0);
      for (let n = 0; n <= m; n++)
        for (let d = 0; d < headDim; d++) out[from + d]! += (weights[n]! / total) * v[n]![kvFrom + d]!;
    }
    return out;
  });
}
