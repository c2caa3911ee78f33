// The dense decoder that the families share: RMS norm before attention and feed-forward layer, grouped-query attention,
// SwiGLU, no sliding windows. A family provides its q, k and v projections; the other tensors and the graph are here.

import { type GraphBuilder, graphInputs, type Stream } from "../graph/graph.ts";
import type { StoredMatrix, StoredVector } from "../graph/weights.ts";
import { type KeyWeights, keyScales } from "../quantisation/key-scales.ts";
import type { TensorSource } from "../readers/tensor-source.ts";
import type { DecoderShapes } from "./hyperparameters.ts";

/** An architecture that can be imported. A family with another graph implements both methods itself. */
export interface Family {
  readonly name: string;
  /** Stores every tensor once, in the order of the graph. */
  takeWeights(source: TensorSource, shapes: DecoderShapes): Promise<DecoderWeights>;
  writeGraph(builder: GraphBuilder, shapes: DecoderShapes, weights: DecoderWeights): void;
}

export interface Linear {
  readonly weight: StoredMatrix;
  readonly bias?: StoredVector;
}

export interface Projections {
  readonly q: Linear;
  readonly k: Linear;
  readonly v: Linear;
}

/** Projections as a family stores them, with the dequantised weights of k. */
export interface TakenProjections extends Projections {
  readonly keys: KeyWeights;
}

export interface LayerWeights extends Projections {
  readonly attentionNorm: StoredVector;
  /** (kvHeads, headDim / 2): int8 pages divide keys by them. */
  readonly pairScales: readonly number[];
  readonly o: StoredMatrix;
  readonly ffnNorm: StoredVector;
  readonly gate: StoredMatrix;
  readonly up: StoredMatrix;
  readonly down: StoredMatrix;
}

export interface DecoderWeights {
  readonly embedding: StoredMatrix;
  readonly layers: readonly LayerWeights[];
  readonly finalNorm: StoredVector;
  /** The embedding where the two are tied. */
  readonly head: StoredMatrix;
}

/** Stores q, k and v of the layer whose tensor names begin with `prefix`. */
type TakeProjections = (
  source: TensorSource,
  shapes: DecoderShapes,
  prefix: string,
) => Promise<TakenProjections>;

/** A family with these projections and this decoder otherwise. */
export function decoderFamily(name: string, takeProjections: TakeProjections): Family {
  return {
    name,
    takeWeights: (source, shapes) => takeDecoder(source, shapes, takeProjections),
    writeGraph: writeDecoder,
  };
}

async function takeDecoder(
  source: TensorSource,
  shapes: DecoderShapes,
  takeProjections: TakeProjections,
): Promise<DecoderWeights> {
  const { hidden, vocab } = shapes;
  const table = { rows: vocab, columns: hidden };
  const embedding = await source.matrix("token_embd.weight", table, { role: "vocabulary" });
  const layers: LayerWeights[] = [];
  for (let layer = 0; layer < shapes.layers; layer++)
    layers.push(await takeLayer(source, shapes, `blk.${layer}`, takeProjections));
  const finalNorm = await source.vector("output_norm.weight", hidden);
  const head = source.has("output.weight")
    ? await source.matrix("output.weight", table, { role: "vocabulary" })
    : embedding;
  return { embedding, layers, finalNorm, head };
}

async function takeLayer(
  source: TensorSource,
  shapes: DecoderShapes,
  prefix: string,
  takeProjections: TakeProjections,
): Promise<LayerWeights> {
  const { hidden, ffn } = shapes;
  const queries = shapes.heads * shapes.headDim;
  const norm = `${prefix}.attn_norm.weight`;
  const attentionNorm = await source.vector(norm, hidden);
  const { keys, ...projections } = await takeProjections(source, shapes, prefix);
  return {
    attentionNorm,
    ...projections,
    pairScales: keyScales(keys, source.values(norm), shapes.headDim),
    o: await source.matrix(`${prefix}.attn_output.weight`, { rows: hidden, columns: queries }),
    ffnNorm: await source.vector(`${prefix}.ffn_norm.weight`, hidden),
    gate: await source.matrix(`${prefix}.ffn_gate.weight`, { rows: ffn, columns: hidden }),
    up: await source.matrix(`${prefix}.ffn_up.weight`, { rows: ffn, columns: hidden }),
    down: await source.matrix(`${prefix}.ffn_down.weight`, { rows: hidden, columns: ffn }),
  };
}

function writeDecoder(graph: GraphBuilder, shapes: DecoderShapes, weights: DecoderWeights): void {
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
    const shape = { layer, heads, kvHeads, headDim, pairScales: w.pairScales };
    let attended = graph.attention(`${path}/attn`, shape, q, k, v);
    if (layer === last) {
      // After the last attention rows are independent: only those in the input `rows` are computed further.
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
