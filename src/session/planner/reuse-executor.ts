// Cells put together from several sequences: what of one stays at its beginning, and behind it what is adopted.
// The sequences that they come from are left as they are, so nothing is lost if the request then fails.
import type { SequencePort } from "../../engine/job.ts";
import type { Span } from "../../text/span.ts";
import { type Content, standingSpans } from "../residency/reconcile.ts";
import type { Range } from "./range.ts";
import { type Adoption, relocatedIn } from "./reuse-planner.ts";

/** Throws what the engine throws; then there is no new sequence. `sources` as they were planned with. */
export function assemble(
  resident: SequencePort,
  { kept, runs }: Adoption,
  sources: readonly { readonly sequence: SequencePort }[],
): SequencePort {
  const sequence = resident.fork(kept);
  try {
    for (const { source, start, end } of runs) {
      sequence.adopt(source < 0 ? resident : sources[source]!.sequence, start, end);
    }
  } catch (cause) {
    sequence.release();
    throw cause;
  }
  return sequence;
}

/** What the new sequence holds; `before`: relocated cells of the resident version. */
export function contentOf(adoption: Adoption, wanted: readonly Span[], before: readonly Range[]): Content {
  const { islands } = adoption;
  const ranges = islands.map(({ startNew, count }) => ({ start: startNew, end: startNew + count }));
  const relocated = relocatedIn(adoption, before).map(({ start, end }) => {
    // A range lies in one island and moves with it.
    const { startOld, startNew } = islands.findLast((island) => island.startNew <= start)!;
    return { start: start - startNew + startOld, end: end - startNew + startOld };
  });
  return { spans: standingSpans(wanted, ranges), relocated };
}
