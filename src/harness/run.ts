// A stored run: create or resume it, and drive it with the loop. Events are stored as they happen. The caller
// passes the Chat and the tools, so a run works on the local model, over HTTP and in tests.
import { randomBytes } from "node:crypto";
import type { Chat } from "../chat/chat.ts";
import type { CountTokens } from "../context/block.ts";
import type { Conversation } from "../context/conversation.ts";
import type { Run, Store } from "../context/store.ts";
import { PocketError, pocketError } from "../errors.ts";
import { eventToJson } from "./event-json.ts";
import type { AgentEvent } from "./events.ts";
import { limitsOf } from "./limits.ts";
import { AgentLoop, type AgentResult } from "./loop.ts";
import { instructionsOf } from "./policies/policy.ts";
import { policyOf } from "./policies/registry.ts";
import { type RunOptions, runOptionsOf } from "./run-options.ts";
import { type AgentTool, chosenTools } from "./tool.ts";

/**
 * Creates a run with the task as its first request. Without `id` a random one is chosen. Throws RUN_EXISTS.
 */
export function beginRun(
  store: Store,
  options: RunOptions & { readonly id?: string; readonly task: string },
  count: CountTokens,
): Run {
  const { id = `run-${randomBytes(4).toString("hex")}`, task, ...settings } = options;
  const title = task.replace(/\s+/g, " ").trim().slice(0, 120);
  const run = store.create({ id, title, settings, instructions: instructionsOf(policyOf(options)) }, count);
  run.conversation.request({ role: "user", content: task });
  return run;
}

/**
 * The run after its last change, with `task` as one more request. Throws RUN_NOT_FOUND, RUN_DAMAGED, and
 * RUN_ANSWERED if the run has its answer and there is no task.
 */
export function resumeRun(store: Store, id: string, count: CountTokens, task?: string): Run {
  const run = store.resume(id, count);
  runOptionsOf(run.info);
  if (task !== undefined) run.conversation.request({ role: "user", content: task });
  else if (isAnswered(run.conversation)) throw pocketError("RUN_ANSWERED", id);
  return run;
}

export interface DriveOptions {
  readonly chat: Chat;
  /** A rejection ends the run like any other error. */
  readonly tools: readonly AgentTool[] | Promise<readonly AgentTool[]>;
  readonly signal: AbortSignal;
  readonly onEvent?: (event: AgentEvent) => void;
}

/**
 * Drives the run to its answer. Rejects with operating errors or the signal's reason; the last event is then
 * run-stopped, and the run can be resumed. Text deltas are emitted and not stored.
 */
export async function driveRun(
  run: Run,
  { chat, tools, signal, onEvent }: DriveOptions,
): Promise<AgentResult> {
  const { info, conversation, journal } = run;
  const options = runOptionsOf(info);
  const emit = (event: AgentEvent) => {
    if (event.type !== "text-delta") journal.event(event.type, eventToJson(event));
    onEvent?.(event);
  };
  const { window, maxTurns, tenant } = options;
  try {
    const loop = new AgentLoop({
      chat,
      conversation,
      tools: chosenTools(await tools, options.tools),
      policy: policyOf(options),
      limits: limitsOf(window, { maxTurns }),
      answer: { ...options.answer, session: info.id, ...(tenant === undefined ? {} : { tenant }) },
      signal,
      onEvent: emit,
    });
    return await loop.run();
  } catch (cause) {
    const reason: unknown = signal.aborted ? signal.reason : cause;
    emit({ type: "run-stopped", ...codeOf(reason) });
    throw reason;
  }
}

/** Whether the last original block is an answer of the agent. */
export function isAnswered({ history }: Conversation): boolean {
  const last = history.blocks.findLast((block) => block.kind !== "memory" && !block.origin);
  return last?.kind === "exchange" && last.originals[0]!.message.toolCalls === undefined;
}

function codeOf(cause: unknown): { code: string; message: string } {
  if (cause instanceof PocketError) return { code: cause.code, message: cause.message };
  return { code: "INTERNAL", message: cause instanceof Error ? cause.message : String(cause) };
}
