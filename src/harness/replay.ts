// Replays a recorded run under a policy, to compare costs. The agent's turns and the results of its tools
// come from the recording; the loop, the policy and the catalog are real. A CostModel says what each prompt
// costs. The result tells what a policy costs, not how well an agent works with it. Turns that only called
// context tools are left out under a policy without such tools.

import type { Chat, ChatEvent, ChatRequest, Message, ToolCall } from "../chat/chat.ts";
import type { CountTokens } from "../context/block.ts";
import { Conversation } from "../context/conversation.ts";
import { compactTool, isContextTool } from "../context/tools.ts";
import { pocketError } from "../errors.ts";
import { CacheSimulator } from "./cache-simulator.ts";
import type { CostModel, PromptCost } from "./cost-model.ts";
import { limitsOf } from "./limits.ts";
import { AgentLoop } from "./loop.ts";
import { instructionsOf, type Policy } from "./policies/policy.ts";
import { type HarnessName, policyOf } from "./policies/registry.ts";
import { type Recording, type Step, withoutContextCalls } from "./recording.ts";
import { addEvent, emptyReport, type RunReport } from "./report.ts";
import type { AgentTool } from "./tool.ts";

export interface ReplayCosts {
  readonly harness: HarnessName;
  readonly turns: number;
  readonly compactions: number;
  readonly expands: number;
  /** Prompt tokens of the largest prompt. */
  readonly peakInput: number;
  /**
   * Prompt tokens computed in all calls, including the compressor: with suffix reuse, and with prefix reuse
   * alone.
   */
  readonly computed: number;
  readonly prefixOnly: number;
}

/** Tokens. Larger than any recording, because a replay compares prompts, not where a run would have ended. */
const window = 2 ** 31;

/** Costs by a CacheSimulator. Throws BAD_RECORDING if a call has no result. */
export async function replay(
  recording: Recording,
  harness: HarnessName,
  count: CountTokens,
): Promise<ReplayCosts> {
  const report = await replayReport(recording, harness, { count, costModel: new CacheSimulator(count) });
  const { turns, compactions, expands, usage, computed, prefixOnly } = report;
  return {
    harness,
    turns: turns.length,
    compactions: compactions.length,
    expands,
    peakInput: usage.peakInput,
    computed,
    prefixOnly,
  };
}

export interface ReplayOptions {
  readonly count: CountTokens;
  readonly costModel: CostModel;
  /** Session id of the requests. Default: "replay". */
  readonly session?: string;
}

/** The report of the replay. Throws BAD_RECORDING if a call has no result. */
export async function replayReport(
  recording: Recording,
  harness: HarnessName,
  { count, costModel, session = "replay" }: ReplayOptions,
): Promise<RunReport> {
  const base = policyOf({ harness });
  const steps = base.tools.length > 0 ? recording.steps : recording.steps.flatMap(withoutContextTools);
  const conversation = new Conversation({ instructions: instructionsOf(base), count });
  const chat = new ReplayChat(recording, costModel);
  const policy: Policy = { ...base, call: (call, turn) => base.call(chat.expect(call), turn) };
  const tools = toolsOf(steps, recording);
  let report: RunReport = emptyReport;
  for (const [index, step] of steps.entries()) {
    if (step.kind === "request") conversation.request(step.message);
    const turns = step.kind === "request" ? turnsAfter(steps, index) : [];
    if (turns.length === 0) continue;
    chat.begin(turns);
    const limits = limitsOf(window, { maxTurns: turns.length + 2, answerTokens: 4096 });
    const onEvent = (event: Parameters<typeof addEvent>[1]) => {
      report = addEvent(report, event);
    };
    await new AgentLoop({ chat, policy, conversation, tools, limits, answer: { session }, onEvent }).run();
  }
  return report;
}

type Turn = Extract<Step, { kind: "turn" }>;

/** Answers with the recorded turns in order, and with the recorded summary when the request is a fork. */
class ReplayChat implements Chat {
  #turns: Turn[] = [];
  #current: Turn | undefined;
  #summary = "";

  constructor(
    private readonly recording: Recording,
    private readonly costModel: CostModel,
  ) {}

  begin(turns: readonly Turn[]): void {
    this.#turns = [...turns];
  }

  /** Call before each context call runs: finds the summary that the compressor wrote for it. */
  expect(call: ToolCall): ToolCall {
    const result = this.#current?.results.get(call.id) ?? "";
    const tag =
      call.name === compactTool.name ? /expand_block \{"tag": "(ctx-\d+)"\}/.exec(result)?.[1] : undefined;
    this.#summary = (tag && this.recording.summaries.get(tag)) || "";
    return call;
  }

  async *chat(request: ChatRequest): AsyncGenerator<ChatEvent, void, undefined> {
    const { promptMs = 0, ...cost }: PromptCost = await this.costModel.cost(request);
    const message = request.fork ? undefined : this.#next();
    yield { type: "prompt-planned", ...cost };
    yield { type: "text-delta", text: message ? message.content : this.#summary };
    for (const call of message?.toolCalls ?? []) yield { type: "tool-call", call };
    if (message) this.costModel.addAnswer(message);
    const reason = message?.toolCalls ? "tool_calls" : "stop";
    yield { type: "answer-finished", reason, ...cost, completionTokens: 0, promptMs, generateMs: 0 };
  }

  /** A recording that breaks off gets an answer here, so that the cost of its last prompt is counted. */
  #next(): Message {
    this.#current = this.#turns.shift();
    return this.#current?.message ?? { role: "assistant", content: "(the recording ends here)" };
  }
}

function withoutContextTools(step: Step): Step[] {
  if (step.kind === "request") return [step];
  const message = withoutContextCalls(step.message);
  return message ? [{ ...step, message }] : [];
}

/** The turns between the request at `index` and the next one. */
function turnsAfter(steps: readonly Step[], index: number): Turn[] {
  const rest = steps.slice(index + 1);
  const end = rest.findIndex(({ kind }) => kind === "request");
  return (end < 0 ? rest : rest.slice(0, end)).filter((step) => step.kind === "turn");
}

/**
 * One tool per called name, which returns the recorded results in order. Ids of calls may repeat in later
 * turns.
 */
function toolsOf(steps: readonly Step[], { title }: Recording): AgentTool[] {
  const given = new Map<string, string[]>();
  for (const step of steps) {
    if (step.kind === "request") continue;
    const { message, results } = step;
    for (const call of message.toolCalls ?? []) {
      if (isContextTool(call.name)) continue;
      const result = results.get(call.id);
      if (result === undefined)
        throw pocketError("BAD_RECORDING", title, `the call ${call.id} has no result`);
      given.set(call.name, [...(given.get(call.name) ?? []), result]);
    }
  }
  return [...given].map(([name, results]) => ({ spec: { name }, run: async () => results.shift()! }));
}
