// The same trajectory under another policy, for costs alone: the agent's turns and its tools' results come from a
// recording, the loop and the policy are the real ones. What a prompt costs is told by a till: a ledger that counts,
// or a Chat that is asked for one token and whose word is dropped. It says what a policy costs and nothing about how
// well it works. Turns that only managed the context fall away under a policy without such tools.

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
  /** Tokens of the largest prompt. */
  readonly peakInput: number;
  /** Prompt tokens over all calls, the compressor's included: with suffix reuse, and with the common prefix alone. */
  readonly computed: number;
  readonly prefixOnly: number;
}

/** Larger than any recording: what is compared is what the prompts would be, not where a run would have ended. */
const window = 2 ** 31;

/** Costs by a ledger. Throws BAD_RECORDING for a recording whose calls have no results. */
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
  /** Of the requests that the till sees. Default: "replay". */
  readonly session?: string;
}

/** Turn by turn, priced by any till. Throws BAD_RECORDING for a recording whose calls have no results. */
export async function replayReport(
  recording: Recording,
  harness: HarnessName,
  { count, costModel, session = "replay" }: ReplayOptions,
): Promise<RunReport> {
  const plain = policyOf({ harness });
  const steps = plain.tools.length > 0 ? recording.steps : recording.steps.flatMap(plainStep);
  const conversation = new Conversation({ instructions: instructionsOf(plain), count });
  const chat = new ReplayChat(recording, costModel);
  const policy: Policy = { ...plain, call: (call, turn) => plain.call(chat.expect(call), turn) };
  const tools = toolsOf(steps, recording);
  let report: RunReport = emptyReport;
  for (const [place, step] of steps.entries()) {
    if (step.kind === "request") conversation.request(step.message);
    const turns = step.kind === "request" ? turnsBehind(steps, place) : [];
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

/** Says the recorded turns in order, and the recorded summary when it is asked on a fork. */
class ReplayChat implements Chat {
  #turns: Turn[] = [];
  #said: Turn | undefined;
  #summary = "";

  constructor(
    private readonly recording: Recording,
    private readonly till: CostModel,
  ) {}

  begin(turns: readonly Turn[]): void {
    this.#turns = [...turns];
  }

  /** To be told of each context call before it is done: it knows what the compressor then wrote. */
  expect(call: ToolCall): ToolCall {
    const result = this.#said?.results.get(call.id) ?? "";
    const tag =
      call.name === compactTool.name ? /expand_block \{"tag": "(ctx-\d+)"\}/.exec(result)?.[1] : undefined;
    this.#summary = (tag && this.recording.summaries.get(tag)) || "";
    return call;
  }

  async *chat(request: ChatRequest): AsyncGenerator<ChatEvent, void, undefined> {
    const { promptMs = 0, ...cost }: PromptCost = await this.till.cost(request);
    const message = request.fork ? undefined : this.#next();
    yield { type: "prompt-planned", ...cost };
    yield { type: "text-delta", text: message ? message.content : this.#summary };
    for (const call of message?.toolCalls ?? []) yield { type: "tool-call", call };
    if (message) this.till.addAnswer(message);
    const reason = message?.toolCalls ? "tool_calls" : "stop";
    yield { type: "answer-finished", reason, ...cost, completionTokens: 0, promptMs, generateMs: 0 };
  }

  /** A recording that breaks off ends here, with the prompt that would have come next. */
  #next(): Message {
    this.#said = this.#turns.shift();
    return this.#said?.message ?? { role: "assistant", content: "(the recording ends here)" };
  }
}

function plainStep(step: Step): Step[] {
  if (step.kind === "request") return [step];
  const message = withoutContextCalls(step.message);
  return message ? [{ ...step, message }] : [];
}

function turnsBehind(steps: readonly Step[], place: number): Turn[] {
  const rest = steps.slice(place + 1);
  const end = rest.findIndex(({ kind }) => kind === "request");
  return (end < 0 ? rest : rest.slice(0, end)).filter((step) => step.kind === "turn");
}

/** One tool per name that was called; each call gives what it gave. Ids of calls may come again in later turns. */
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
