// A nudge for the Pocket Context Agent. Below a fraction of the window the catalog is hidden. From there on
// it is shown, and the first time a sentence asks the agent to compact; it asks again only after a
// compaction. The article has no nudge. It is off by default, and its results are named "+nudge": small
// models take a catalog behind every request for their task, and seldom compact on their own.
import { catalogOf } from "../../context/catalog.ts";
import type { Policy } from "./policy.ts";

export interface NudgeOptions {
  /** Of the window, between 0 and 1. */
  readonly fraction: number;
}

/** The policy with a sentence added to its trailer. Serves one run: it remembers whether it has asked. */
export function nudged(policy: Policy, { fraction }: NudgeOptions): Policy {
  /** Number of compactions when the agent was last asked. */
  let askedAt = -1;
  return {
    ...policy,
    name: `${policy.name}+nudge`,
    trailer(turn) {
      const { history, archive } = turn.conversation;
      const compactions = archive.records.length;
      const used = history.tokens + turn.pending;
      if (used < fraction * turn.limit) return undefined;
      const trailer = policy.trailer(turn);
      const ids = catalogOf(history).map(({ id }) => id);
      if (!trailer || ids.length === 0 || askedAt === compactions) return trailer;
      askedAt = compactions;
      const call = `compact_block {"start": "${ids[0]}", "end": "${ids.at(-1)}"}`;
      const sentence = `The context is ${Math.round((100 * used) / turn.limit)} % full. Before you go on, call compact_block on the blocks that you have finished with; for all of them: ${call}.`;
      return { ...trailer, content: `${trailer.content}\n${sentence}` };
    },
  };
}
