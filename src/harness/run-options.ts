// Options of a run: harness, model, window, folders, sampling. They are stored as JSON in the `settings`
// column of the store, so that the run can be resumed, and validated when they are read back.
import { z } from "zod";
import type { AnswerOptions } from "../chat/chat.ts";
import type { RunInfo } from "../context/store.ts";
import { pocketError } from "../errors.ts";
import { harnessNames } from "./policies/registry.ts";

const runOptionsSchema = z.object({
  harness: z.enum(harnessNames),
  model: z.string(),
  /** Of an OpenAI-compatible server. Absent: the model of this process. */
  baseUrl: z.string().optional(),
  /** Absolute path. */
  workspace: z.string().optional(),
  /** Absolute path. */
  corpus: z.string().optional(),
  /** MCP servers in the syntax of parseMcpServer. */
  mcp: z.array(z.string()).optional(),
  /** Tokens. */
  window: z.number().int().min(512),
  maxTurns: z.number().int().min(1),
  /** Fraction of the window from which on the agent is asked to compact. Absent: never. */
  nudge: z.number().gt(0).lt(1).optional(),
  /** Every answer is a call, and at `nudge` a call of compact_block: policies/forced-policy.ts. */
  force: z.boolean().optional(),
  /** Names of the offered tools. Absent: all. */
  tools: z.array(z.string()).optional(),
  /** Owner of the run; it does not exist for other tenants. */
  tenant: z.string().optional(),
  /** Sampling, reuse and repair of the agent's calls. */
  answer: z
    .custom<Omit<AnswerOptions, "maxTokens" | "signal">>((value) => typeof value === "object")
    .optional(),
});

export type RunOptions = z.infer<typeof runOptionsSchema>;

/** Throws RUN_DAMAGED if the settings of the run are not valid options. */
export function runOptionsOf({ id, settings }: RunInfo): RunOptions {
  const { data, error } = runOptionsSchema.safeParse(settings);
  if (data) return data;
  const issue = error.issues[0]!;
  throw pocketError("RUN_DAMAGED", id, `its settings: ${issue.path.join(".")}: ${issue.message}`);
}
