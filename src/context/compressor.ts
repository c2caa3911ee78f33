// Writes the summary that takes the place of a range: one call of the same model, without tools, that sees the
// history through the last selected block and one instruction, and returns only text. An empty, endless or
// tool-calling answer is asked for once more and then given up. It changes no history.

import type { AnswerOptions, Chat, Message, Tool } from "../chat/chat.ts";
import { type AnswerFinished, type ChatAnswer, collectAnswer } from "./collect-answer.ts";
import { formatOf, textOf } from "./summary-form.ts";

export interface CompressorOptions {
  readonly chat: Chat;
  /**
   * The agent's. They are not for use: a prompt that begins like the agent's finds its cache, and templates
   * write tools at the beginning. Absent: none are sent.
   */
  readonly tools?: readonly Tool[];
  /**
   * Sampling and the like of every call. With the agent's session in it a call shares all cells of the agent's
   * prompt, and computes its instruction only; that session stays as it is.
   */
  readonly answer?: Omit<AnswerOptions, "maxTokens" | "signal" | "forget" | "fork">;
}

export interface CompressionTask {
  /** The conversation through the last selected block. */
  readonly messages: readonly Message[];
  /** How the catalog labels the first selected block. Ids would be no help: the messages carry none. */
  readonly opening: string;
  /** What the user asked for last, or the beginning of it: what a summary is for. */
  readonly request?: string | undefined;
  /** What the agent wants the summary to dwell on. */
  readonly focus?: string | undefined;
  /** Of a form, where the summary is to be one; see summary-form.ts. */
  readonly fields?: readonly string[] | undefined;
  readonly maxTokens: number;
  readonly signal?: AbortSignal | undefined;
}

export interface Compression {
  /** Undefined when both answers were unusable. */
  readonly summary?: string;
  /** What was wrong with the answers that were not used, in order. */
  readonly faults: readonly string[];
  /** One per call: what they cost. */
  readonly finishes: readonly AnswerFinished[];
}

const attempts = 2;

export class Compressor {
  constructor(private readonly options: CompressorOptions) {}

  /** Rejects as the Chat does. */
  async compress(task: CompressionTask): Promise<Compression> {
    const faults: string[] = [];
    const finishes: AnswerFinished[] = [];
    while (finishes.length < attempts) {
      const { message, finish } = await this.#ask(task, faults.at(-1));
      finishes.push(finish);
      const text = summaryOf(message.content);
      const summary = task.fields ? textOf(text, task.fields) : text;
      const fault = faultOf({ message, finish }, summary, task.maxTokens);
      if (fault === undefined) return { summary, faults, finishes };
      faults.push(fault);
    }
    return { faults, finishes };
  }

  #ask(task: CompressionTask, fault: string | undefined): Promise<ChatAnswer> {
    const { messages, maxTokens, signal, fields } = task;
    const { tools, answer } = this.options;
    const request = {
      ...answer,
      ...(tools ? { tools, toolChoice: "none" as const } : {}),
      // Values are copied: no chance may have a part in it.
      ...(fields ? { format: formatOf(fields), temperature: 0 } : {}),
      messages: [...messages, instruction(task, fault)],
      maxTokens,
      fork: true,
      ...(signal ? { signal } : {}),
    };
    return collectAnswer(this.options.chat.chat(request));
  }
}

/** The last message of a call; `fault` says what was wrong with the answer before. */
export function instruction(
  { opening, request, focus, fields, maxTokens }: Omit<CompressionTask, "messages" | "signal">,
  fault?: string,
): Message {
  if (fields && request) return { role: "user", content: `${request}\n\n${question}` };
  const lines = [
    `Summarize, in your own words, the last part of the conversation above: it begins with "${opening}" and goes on to here.`,
    "Your summary will take the place of that part. Write down what later work may need: what was done and decided and why, facts with exact names, paths, numbers and short quotations, errors met, what is still open. Leave out what was said before that part.",
    `State only what is above; do not guess. Write plain sentences, no code block, no tool calls, no preface; stay below ${maxTokens} tokens.`,
    ...(request
      ? [`What it is for is this request of the user; keep every fact that answers it: ${request}`]
      : []),
    ...(focus ? [`The agent asks to keep in particular: ${focus}`] : []),
    ...(fault
      ? [`An earlier attempt was not usable because it ${fault}. Answer with the text of the summary alone.`]
      : []),
  ];
  return { role: "user", content: lines.join("\n") };
}

/** For a form. A small model answers a short question behind the request; told what a summary is, it repeats the request. */
const question =
  "Which value that is asked for here does each result above give? Copy it from the result's text.";

/** Reasoning in front is no part of the summary; reasoning that never ends leaves none. */
function summaryOf(content: string): string {
  const behind = content.split("</think>").at(-1)!;
  return behind.trimStart().startsWith("<think>") ? "" : behind.trim();
}

function faultOf({ message, finish }: ChatAnswer, summary: string, maxTokens: number): string | undefined {
  if (message.toolCalls || finish.reason === "tool_calls" || /^(<tool_call>|<\|tool_call)/.test(summary)) {
    return "called a tool";
  }
  if (finish.reason === "length") return `did not end within ${maxTokens} tokens (six sentences are enough)`;
  return summary === "" ? "was empty" : undefined;
}
