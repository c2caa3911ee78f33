// Qwen2 and Qwen2.5 (Yang et al., 2024, arXiv 2407.10671; arXiv 2412.15115): the dense decoder with biases on q, k and v.
// Rows of q and k are in half layout in the GGUF file.
import type { TensorSource } from "../readers/tensor-source.ts";
import { decoderFamily, type TakenProjections } from "./decoder.ts";
import type { DecoderShapes } from "./hyperparameters.ts";

export const qwen2 = decoderFamily("qwen2", takeProjections);

async function takeProjections(
  source: TensorSource,
  { hidden, heads, kvHeads, headDim }: DecoderShapes,
  prefix: string,
): Promise<TakenProjections> {
  const linear = async (name: string, rows: number) => ({
    weight: await source.matrix(`${prefix}.${name}.weight`, { rows, columns: hidden }),
    bias: await source.vector(`${prefix}.${name}.bias`, rows),
  });
  return {
    q: await linear("attn_q", heads * headDim),
    k: await linear("attn_k", kvHeads * headDim),
    v: await linear("attn_v", kvHeads * headDim),
    keys: {
      weight: source.values(`${prefix}.attn_k.weight`),
      bias: source.values(`${prefix}.attn_k.bias`),
    },
  };
}
