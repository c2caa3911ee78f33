// The harnesses by name. To add one, write its policy in a file of this folder and add a line to `policies`.
import { compactTool } from "../../context/tools.ts";
import { forced } from "./forced-policy.ts";
import { nudged } from "./nudge.ts";
import { pocketContext } from "./pocket-context.ts";
import type { Policy } from "./policy.ts";
import { react } from "./react.ts";

/** Keys are the values of `--harness` and of `harness` in POST /v1/agent/runs. */
const policies = {
  pca: pocketContext,
  react,
} satisfies Record<string, Policy>;

export type HarnessName = keyof typeof policies;

export const harnessNames = Object.keys(policies) as [HarnessName, ...HarnessName[]];

export interface PolicyOptions {
  readonly harness: HarnessName;
  /** Fraction of the window from which on the agent is asked to compact. Absent: never. */
  readonly nudge?: number | undefined;
  /** With `nudge`: constrains the agent instead of asking it; see forced-policy.ts. Default: false. */
  readonly force?: boolean | undefined;
}

/** A policy for one run. A nudge needs compact_block, so other policies ignore it. */
export function policyOf({ harness, nudge, force }: PolicyOptions): Policy {
  const policy: Policy = policies[harness];
  if (nudge === undefined || !policy.tools.includes(compactTool)) return policy;
  return force === true ? forced(policy, { fraction: nudge }) : nudged(policy, { fraction: nudge });
}
