// The families that are served, by the architecture name that stands in a GGUF file. A family says which
// tensors it takes and how its graph is written; what several have in common is in decoder.ts.
import { pocketError } from "../../src/errors.ts";
import type { GraphBuilder } from "../graph/graph.ts";
import type { TensorSource } from "../readers/tensor-source.ts";
import type { DecoderWeights } from "./decoder.ts";
import type { DecoderShapes } from "./hyperparameters.ts";
import { llama } from "./llama.ts";
import { qwen2 } from "./qwen2.ts";

export interface Family {
  readonly name: "qwen2" | "llama";
  /** Takes every tensor once, in the order of the graph. */
  takeWeights(source: TensorSource, shapes: DecoderShapes): Promise<DecoderWeights>;
  writeGraph(builder: GraphBuilder, shapes: DecoderShapes, weights: DecoderWeights): void;
}

const families: Readonly<Record<string, Family>> = { qwen2, llama };

/** Throws UNSUPPORTED_MODEL for an architecture that is not served. */
export function familyOf(architecture: string): Family {
  if (Object.hasOwn(families, architecture)) return families[architecture]!;
  const served = Object.keys(families).join(" and ");
  throw pocketError(
    "UNSUPPORTED_MODEL",
    `The architecture '${architecture}' is not served; ${served} are: dense layers, full attention, plain rotary positions.`,
  );
}
