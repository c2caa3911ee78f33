// A nudge for the Pocket Context Agent: until the window is fuller than a share the catalog is not shown, from there
// on it is, and the first time it asks the agent to compact; after a compaction it may ask again. This is ours and not
// the article's, whose agent sees the catalog always and decides alone. It is off unless a run asks for it and named
// in the numbers: small models take a catalog behind every request for their task, and seldom compact by themselves.
import { catalogOf } from "../../context/catalog.ts";
import type { Policy } from "./policy.ts";

export interface NudgeOptions {
  /** Part of the window, between 0 and 1. */
  readonly share: number;
}

/** A policy for one run: it remembers whether it has asked. Its trailer is the policy's and one sentence more. */
export function nudged(policy: Policy, { share }: NudgeOptions): Policy {
  let askedAt = -1;
  return {
    ...policy,
    name: `${policy.name}+nudge`,
    trailer(turn) {
      const { history, archive } = turn.conversation;
      const compactions = archive.records.length;
      const used = history.tokens + turn.pending;
      if (used < share * turn.limit) return undefined;
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
