// What a run is asked for, and what of it is kept with the run so that it can be resumed: harness, model, window,
// folders, sampling. Stored as JSON in the store's settings column and read back with suspicion.
import { z } from "zod";
import type { AnswerOptions, Message } from "../chat/chat.ts";
import type { RunInfo } from "../context/store.ts";
import { pocketError } from "../errors.ts";
import { forced } from "./policies/forced-policy.ts";
import { nudged } from "./policies/nudge.ts";
import { pocketContext } from "./policies/pocket-context.ts";
import type { Policy } from "./policies/policy.ts";
import { react } from "./policies/react.ts";

export const harnessNames = ["pca", "react"] as const;

const orderSchema = z.object({
  harness: z.enum(harnessNames),
  model: z.string(),
  /** Of another server; absent: the model of this process. */
  baseUrl: z.string().optional(),
  /** Absolute folders. */
  workspace: z.string().optional(),
  corpus: z.string().optional(),
  /** MCP servers, as parseMcpServer takes them. */
  mcp: z.array(z.string()).optional(),
  /** Tokens. */
  window: z.number().int().min(512),
  maxTurns: z.number().int().min(1),
  /** From this part of the window on the agent is asked to compact; absent: never. */
  nudge: z.number().gt(0).lt(1).optional(),
  /** Every answer is a call, and at that part of the window one of compact_block: forced-policy.ts. */
  force: z.boolean().optional(),
  /** Names of the tools it is offered; absent: all there are. */
  tools: z.array(z.string()).optional(),
  /** Whose run it is; others do not see it. */
  tenant: z.string().optional(),
  /** Sampling, reuse and repair of the agent's calls. */
  answer: z
    .custom<Omit<AnswerOptions, "maxTokens" | "signal">>((value) => typeof value === "object")
    .optional(),
});

export type RunOptions = z.infer<typeof orderSchema>;

/** Throws RUN_DAMAGED for settings that are not a run's of this harness. */
export function runOptionsOf({ id, settings }: RunInfo): RunOptions {
  const { data, error } = orderSchema.safeParse(settings);
  if (data) return data;
  const issue = error.issues[0]!;
  throw pocketError("RUN_DAMAGED", id, `its settings: ${issue.path.join(".")}: ${issue.message}`);
}

export function policyOf({ harness, nudge, force }: Pick<RunOptions, "harness" | "nudge" | "force">): Policy {
  const policy = { pca: pocketContext, react }[harness];
  if (nudge === undefined || harness !== "pca") return policy;
  return force === true ? forced(policy, { share: nudge }) : nudged(policy, { share: nudge });
}

/** The same text for every policy, and behind it the policy's own. */
export function instructionsOf(policy: Policy): Message[] {
  const prompt = [
    "You are an agent that works on the user's task with tools. Work step by step: say in one or two sentences what you do next, call tools, look at their results.",
    "Tool results are all that you know of the files; do not guess what is in them. When a call fails, read why and try something else.",
    "When the task is done, answer without calling a tool: that answer ends the task.",
    ...(policy.prompt === "" ? [] : [policy.prompt]),
  ];
  return [{ role: "system", content: prompt.join("\n") }];
}
