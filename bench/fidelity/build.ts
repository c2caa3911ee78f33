// Carries recipes out on the runner. It decides nothing, and keeps nothing.
import type { Runner, SequenceId } from "../../src/engine/addon.ts";
import type { Recipe } from "./arms.ts";
import { edit } from "./cells.ts";
import { withoutRotation } from "./no-rotation.ts";

/**
 * A new sequence; `resident` is left as it was. `prefill` makes a cold sequence of tokens, which may have been computed
 * in an earlier run.
 */
export async function build(
  runner: Runner,
  resident: SequenceId,
  recipe: Recipe,
  prefill: (tokens: Int32Array) => Promise<SequenceId>,
): Promise<SequenceId> {
  const { keep, edits, chunk } = recipe;
  if (keep === 0 && chunk === undefined) return prefill(edits[0]![0]!.tokens);
  const id = keep === 0 ? runner.newSequence() : runner.fork(resident, keep);
  for (const splices of edits) if (splices.length > 0) await edit(runner, id, splices, chunk);
  if (!recipe.noRotation) return id;
  const other = await withoutRotation(runner, id);
  runner.release(id);
  return other;
}
