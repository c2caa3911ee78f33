// Llama-class models (Touvron et al., 2023, arXiv 2302.13971) and those built like them, SmolLM2 among them:
// a dense decoder with grouped query heads, no biases, and SwiGLU. GGUF stores the rows of q and k with the
// two dimensions of a rotary pair side by side; they are put back into half layout on the way in.
import type { DecoderWeights, Family, LayerWeights } from "./family.ts";
import { type GraphBuilder, graphInputs, type Stream } from "./graph.ts";
import type { DecoderShapes } from "./shapes.ts";
import type { TensorSource } from "./source.ts";
import type { StoredVector } from "./weights.ts";

export const llama: Family = { name: "llama", takeWeights, writeGraph };

async function takeWeights(source: TensorSource, shapes: DecoderShapes): Promise<DecoderWeights> {
  const { hidden, vocab } = shapes;
  const table = { rows: vocab, columns: hidden };
  const embedding = await source.matrix("token_embd.weight", table, { role: "vocabulary" });
  const layers: LayerWeights[] = [];
  for (let layer = 0; layer < shapes.layers; layer++) layers.push(await takeLayer(source, shapes, layer));
  const finalNorm = await source.vector("output_norm.weight", hidden);
  const head = source.has("output.weight")
    ? await source.matrix("output.weight", table, { role: "vocabulary" })
    : embedding;
  return { embedding, layers, finalNorm, head };
}

async function takeLayer(source: TensorSource, shapes: DecoderShapes, layer: number): Promise<LayerWeights> {
  const { hidden, ffn } = shapes;
  const queries = shapes.heads * shapes.headDim;
  const keys = shapes.kvHeads * shapes.headDim;
  const prefix = `blk.${layer}`;
  const linear = async (name: string, rows: number, interleavedHeads = 0) => ({
    weight: await source.matrix(`${prefix}.${name}.weight`, { rows, columns: hidden }, { interleavedHeads }),
  });
  return {
    attentionNorm: await source.vector(`${prefix}.attn_norm.weight`, hidden),
    q: await linear("attn_q", queries, shapes.heads),
    k: await linear("attn_k", keys, shapes.kvHeads),
    v: await linear("attn_v", keys),
    o: await source.matrix(`${prefix}.attn_output.weight`, { rows: hidden, columns: queries }),
    ffnNorm: await source.vector(`${prefix}.ffn_norm.weight`, hidden),
    gate: await source.matrix(`${prefix}.ffn_gate.weight`, { rows: ffn, columns: hidden }),
    up: await source.matrix(`${prefix}.ffn_up.weight`, { rows: ffn, columns: hidden }),
    down: await source.matrix(`${prefix}.ffn_down.weight`, { rows: hidden, columns: ffn }),
  };
}

function writeGraph(graph: GraphBuilder, shapes: DecoderShapes, weights: DecoderWeights): void {
  const { heads, kvHeads, headDim, normEpsilon } = shapes;
  const last = weights.layers.length - 1;
  let residual = graph.embed("/model/embed_tokens", weights.embedding, graphInputs.tokens);
  let branch: string | undefined;
  const stream = (path: string, gain: StoredVector): Stream => ({
    path,
    residual,
    branch,
    gain,
    epsilon: normEpsilon,
  });

  for (const [layer, w] of weights.layers.entries()) {
    const path = `/model/layers.${layer}`;
    const qkv = [
      { path: `${path}/attn/q_proj`, ...w.q },
      { path: `${path}/attn/k_proj`, ...w.k },
      { path: `${path}/attn/v_proj`, ...w.v },
    ];
    const attention = graph.normedLinears(
      `${path}/attn/qkv_proj`,
      qkv,
      stream(`${path}/input_norm`, w.attentionNorm),
    );
    residual = attention.sum;
    const [q, k, v] = attention.outputs as [string, string, string];
    let attended = graph.attention(`${path}/attn`, { layer, heads, kvHeads, headDim }, q, k, v);
    if (layer === last) {
      // Behind the last attention no row looks at another: only the wanted ones go on.
      attended = graph.pickRows(`${path}/pick/attn`, attended);
      residual = graph.pickRows(`${path}/pick/residual`, residual);
    }
    branch = graph.linear(`${path}/attn/o_proj`, w.o, attended);
    const mlp = graph.normedGate(`${path}/mlp`, w.gate, w.up, stream(`${path}/post_attn_norm`, w.ffnNorm));
    residual = mlp.sum;
    branch = graph.linear(`${path}/mlp/down_proj`, w.down, mlp.gated);
  }
  graph.head("/lm_head", weights.head, stream("/model/norm", weights.finalNorm));
}
