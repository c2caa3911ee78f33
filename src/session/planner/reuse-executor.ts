// Builds the sequence of a reuse plan: a fork of the kept cells, then the adopted runs. It does not change the source
// sequences, so nothing is lost if the request fails later.
import type { SequencePort } from "../../engine/job.ts";
import type { Span } from "../../text/span.ts";
import { type Content, spansWithin } from "../residency/reconcile.ts";
import type { Range } from "./range.ts";
import { type ReusePlan, relocatedIn } from "./reuse-planner.ts";

/** `sources` are those that the plan was made with. Throws what the engine throws; no sequence is left then. */
export function executeReuse(
  resident: SequencePort,
  { kept, runs }: ReusePlan,
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

/** What the new sequence holds. `before`: relocated cells of the resident version. */
export function contentOf(plan: ReusePlan, wanted: readonly Span[], before: readonly Range[]): Content {
  const { reused } = plan;
  const ranges = reused.map(({ startNew, count }) => ({ start: startNew, end: startNew + count }));
  const relocated = relocatedIn(plan, before).map(({ start, end }) => {
    // Each relocated range lies in one reused range and moves with it.
    const { startOld, startNew } = reused.findLast((range) => range.startNew <= start)!;
    return { start: start - startNew + startOld, end: end - startNew + startOld };
  });
  return { spans: spansWithin(wanted, ranges), relocated };
}
