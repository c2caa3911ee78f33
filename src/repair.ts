// The grammar of `repair`, which names the reused cells to recompute after an edit. It is a top-level file because
// the settings, the wire schemas, the command line and the benches all read it, and no room may be imported by all
// of them; src/chat has the type and no code.
import type { Repair } from "./chat/chat.ts";

export const repairGrammar =
  "none, assistant, assistant+256, first-assistant, a number of tokens >= 1 or a fraction between 0 and 1";

const words: readonly unknown[] = ["none", "assistant", "assistant+256", "first-assistant"];

/** A word of the grammar, a count of tokens or a fraction; numbers as numbers. */
export function isRepair(value: unknown): value is Repair {
  if (typeof value !== "number") return words.includes(value);
  return (Number.isSafeInteger(value) && value >= 1) || (value > 0 && value < 1);
}

/** Numbers as text, too. Undefined for what the grammar does not have. */
export function parseRepair(text: string): Repair | undefined {
  const number = Number(text);
  const value = Number.isNaN(number) ? text : number;
  return isRepair(value) ? value : undefined;
}
