// A stored run: begun or resumed, driven by the loop, its events written beside it as they happen. The Chat and the
// tools are handed in, so the same run works on the local model, over HTTP and on a script.
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

/** A run with the task as its first request. `id` absent: a fresh one. Throws RUN_EXISTS. */
export function beginRun(
  store: Store,
  order: RunOptions & { readonly id?: string; readonly task: string },
  count: CountTokens,
): Run {
  const { id = `run-${randomBytes(4).toString("hex")}`, task, ...settings } = order;
  const title = task.replace(/\s+/g, " ").trim().slice(0, 120);
  const run = store.create({ id, title, settings, instructions: instructionsOf(policyOf(order)) }, count);
  run.conversation.request({ role: "user", content: task });
  return run;
}

/**
 * The run as it was left, with one more request where there is a task. Throws RUN_NOT_FOUND, RUN_DAMAGED, and
 * RUN_ANSWERED for a run that has nothing to do.
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
  /** What goes wrong while they come ends the run as anything else does. */
  readonly tools: readonly AgentTool[] | Promise<readonly AgentTool[]>;
  readonly signal: AbortSignal;
  readonly onEvent?: (event: AgentEvent) => void;
}

/**
 * Runs to the answer. Rejects with operating errors, or with the signal's reason; the last event then says so and
 * the run can be resumed. Text deltas are told and not stored.
 */
export async function driveRun(
  run: Run,
  { chat, tools, signal, onEvent }: DriveOptions,
): Promise<AgentResult> {
  const { info, conversation, journal } = run;
  const order = runOptionsOf(info);
  const tell = (event: AgentEvent) => {
    if (event.type !== "text-delta") journal.event(event.type, eventToJson(event));
    onEvent?.(event);
  };
  const { window, maxTurns, tenant } = order;
  try {
    const loop = new AgentLoop({
      chat,
      conversation,
      tools: chosenTools(await tools, order.tools),
      policy: policyOf(order),
      limits: limitsOf(window, { maxTurns }),
      answer: { ...order.answer, session: info.id, ...(tenant === undefined ? {} : { tenant }) },
      signal,
      onEvent: tell,
    });
    return await loop.run();
  } catch (cause) {
    const reason: unknown = signal.aborted ? signal.reason : cause;
    tell({ type: "run-stopped", ...nameOf(reason) });
    throw reason;
  }
}

/** Whether the agent has the last word. */
export function isAnswered({ history }: Conversation): boolean {
  const last = history.blocks.findLast((block) => block.kind !== "memory" && !block.origin);
  return last?.kind === "exchange" && last.originals[0]!.message.toolCalls === undefined;
}

function nameOf(cause: unknown): { code: string; message: string } {
  if (cause instanceof PocketError) return { code: cause.code, message: cause.message };
  return { code: "INTERNAL", message: cause instanceof Error ? cause.message : String(cause) };
}
