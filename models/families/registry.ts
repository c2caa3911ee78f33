// The registry of model families, by the architecture name in a GGUF file: a family is a file in this folder and an entry
// in `families`.
import { pocketError } from "../../src/errors.ts";
import type { Family } from "./decoder.ts";
import { llama } from "./llama.ts";
import { qwen2 } from "./qwen2.ts";

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
