// Llama-class models (Touvron et al., 2023, arXiv 2302.13971), SmolLM2 among them: the dense decoder without biases. GGUF
// stores the rows of q and k with the two dimensions of a rotary pair as neighbours; import reorders them to half layout.
import type { TensorSource } from "../readers/tensor-source.ts";
import { decoderFamily, type TakenProjections } from "./decoder.ts";
import type { DecoderShapes } from "./hyperparameters.ts";

export const llama = decoderFamily("llama", takeProjections);

async function takeProjections(
  source: TensorSource,
  { hidden, heads, kvHeads, headDim }: DecoderShapes,
  prefix: string,
): Promise<TakenProjections> {
  const linear = async (name: string, rows: number, interleavedHeads = 0) => ({
    weight: await source.matrix(`${prefix}.${name}.weight`, { rows, columns: hidden }, { interleavedHeads }),
  });
  return {
    q: await linear("attn_q", heads * headDim, heads),
    k: await linear("attn_k", kvHeads * headDim, kvHeads),
    v: await linear("attn_v", kvHeads * headDim),
    keys: { weight: source.values(`${prefix}.attn_k.weight`, kvHeads) },
  };
}
