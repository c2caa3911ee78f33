// Reads a decoder's hyperparameters from GGUF metadata. A key that asks for arithmetic that is not implemented is refused,
// never ignored.
import { basename } from "node:path";
import { pocketError } from "../../src/errors.ts";
import type { Gguf } from "../readers/gguf.ts";

export interface DecoderShapes {
  readonly layers: number;
  readonly hidden: number;
  readonly ffn: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly vocab: number;
  readonly context: number;
  readonly ropeBase: number;
  readonly normEpsilon: number;
}

/** Throws UNSUPPORTED_MODEL with the reason, or BAD_GGUF for a key that is missing or has an impossible value. */
export function readShapes(gguf: Gguf, architecture: string): DecoderShapes {
  const number = (key: string, fallback?: number): number => {
    const value = gguf.metadata.get(`${architecture}.${key}`) ?? fallback;
    if (typeof value === "number" && value > 0 && Number.isFinite(value)) return value;
    throw broken(
      gguf,
      `${architecture}.${key} is ${value === undefined ? "missing" : JSON.stringify(value)}`,
    );
  };
  const count = (key: string, fallback?: number): number => {
    const value = number(key, fallback);
    if (Number.isInteger(value) && value <= 2 ** 24) return value;
    throw broken(gguf, `${architecture}.${key} is ${value}, not a possible count`);
  };
  refuseUnknownArithmetic(gguf, architecture);
  const hidden = count("embedding_length");
  const heads = count("attention.head_count");
  const shapes: DecoderShapes = {
    layers: count("block_count"),
    hidden,
    ffn: count("feed_forward_length"),
    heads,
    kvHeads: count("attention.head_count_kv", heads),
    headDim: count("attention.key_length", hidden / heads),
    vocab: gguf.tensors.get("token_embd.weight")?.dims[1] ?? count("vocab_size"),
    context: count("context_length"),
    ropeBase: number("rope.freq_base", 10_000),
    normEpsilon: number("attention.layer_norm_rms_epsilon"),
  };
  refuseUnfitShapes(gguf, architecture, shapes);
  return shapes;
}

function refuseUnknownArithmetic(gguf: Gguf, architecture: string): void {
  const value = (key: string) => gguf.metadata.get(`${architecture}.${key}`);
  const window = value("attention.sliding_window");
  if (window !== undefined && window !== 0)
    throw refusal(
      `Its attention has a sliding window of ${window} tokens; an edit would move cells in and out of it.`,
    );
  const experts = value("expert_count");
  if (experts !== undefined && experts !== 0)
    throw refusal(`It has ${experts} experts; only dense models are served.`);
  const scaling = value("rope.scaling.type");
  const factor = value("rope.scaling.factor") ?? value("rope.scale_linear") ?? 1;
  const plain = scaling === undefined || scaling === "none" || (scaling === "linear" && factor === 1);
  if (!plain || factor !== 1)
    throw refusal(
      `Its rotary positions are scaled ('${scaling ?? "linear"}', factor ${factor}), a rotary scheme that cannot be shifted.`,
    );
  if (gguf.tensors.has("rope_freqs.weight"))
    throw refusal(
      "It has its own rotary frequencies (rope_freqs.weight), a rotary scheme that cannot be shifted.",
    );
}

function refuseUnfitShapes(gguf: Gguf, architecture: string, shapes: DecoderShapes): void {
  const { heads, kvHeads, headDim } = shapes;
  if (heads % kvHeads !== 0)
    throw broken(gguf, `${heads} heads do not divide among ${kvHeads} key/value heads`);
  if (headDim % 16 !== 0)
    throw refusal(`Its heads have ${headDim} dimensions; the attention kernel needs a multiple of 16.`);
  const rotary = gguf.metadata.get(`${architecture}.rope.dimension_count`) ?? headDim;
  if (rotary !== headDim)
    throw refusal(
      `It rotates ${rotary} of ${headDim} dimensions of a head, a rotary scheme that cannot be shifted.`,
    );
  const valueDim = gguf.metadata.get(`${architecture}.attention.value_length`) ?? headDim;
  if (valueDim !== headDim)
    throw refusal(`Its values have ${valueDim} dimensions and its keys ${headDim}; they must agree.`);
}

function refusal(sentence: string): Error {
  return pocketError("UNSUPPORTED_MODEL", sentence);
}

function broken(gguf: Gguf, why: string): Error {
  return pocketError("BAD_GGUF", basename(gguf.file), why);
}
