// Writes the summary of a range: one call of the agent's model, whose prompt is the history through the last
// selected block and one instruction. An answer that is empty, cut off or a tool call is asked for once more.
// Changes no history.

import type { AnswerOptions, Chat, Message, Tool } from "../chat/chat.ts";
import { type AnswerFinished, type ChatAnswer, collectAnswer } from "./collect-answer.ts";
import { formatOf, textOf } from "./summary-form.ts";

/** Options of a Compressor. */
export interface CompressorOptions {
  readonly chat: Chat;
  /**
   * The agent's tools. The compressor must not call them; they are sent because templates write tools at the
   * beginning of the prompt, and only a prompt that begins like the agent's is found in the cache. Absent:
   * none are sent.
   */
  readonly tools?: readonly Tool[];
  /**
   * Sampling, session and reuse of every call. With the agent's session a call is a fork of it: it shares all
   * cells of the agent's prompt, computes only its instruction, and leaves the session unchanged.
   */
  readonly answer?: Omit<AnswerOptions, "maxTokens" | "signal" | "forget" | "fork">;
}

/** One range to summarize. */
export interface CompressionTask {
  /** The conversation through the last selected block. */
  readonly messages: readonly Message[];
  /**
   * Label of the first selected block in the catalog. Messages carry no ids, so an id would not identify it.
   */
  readonly opening: string;
  /** The beginning of the latest user request, so that the summary keeps what it asks for. */
  readonly request?: string | undefined;
  /** What the agent wants the summary to keep. */
  readonly focus?: string | undefined;
  /** Fields of a form; see summary-form.ts. Absent: free text. */
  readonly fields?: readonly string[] | undefined;
  /** Maximum tokens of the answer. */
  readonly maxTokens: number;
  readonly signal?: AbortSignal | undefined;
}

/** Result of one task. */
export interface Compression {
  /** Absent if no answer was usable. */
  readonly summary?: string;
  /** What was wrong with the unusable answers, in order. */
  readonly faults: readonly string[];
  /** One per call, with its costs. */
  readonly finishes: readonly AnswerFinished[];
}

const maxAttempts = 2;

/** Asks a Chat for summaries. Keeps no state between tasks. */
export class Compressor {
  constructor(private readonly options: CompressorOptions) {}

  /** Rejects with errors of the Chat. */
  async compress(task: CompressionTask): Promise<Compression> {
    const faults: string[] = [];
    const finishes: AnswerFinished[] = [];
    while (finishes.length < maxAttempts) {
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
      // The values are copied from results, so sampling must not vary them.
      ...(fields ? { format: formatOf(fields), temperature: 0 } : {}),
      messages: [...messages, instruction(task, fault)],
      maxTokens,
      fork: true,
      ...(signal ? { signal } : {}),
    };
    return collectAnswer(this.options.chat.chat(request));
  }
}

/** The last message of a call. `fault`: what was wrong with the previous answer. */
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

/**
 * For a form. Small models answer a short question after the request; given a definition of a summary, they
 * repeat it.
 */
const question =
  "Which value that is asked for here does each result above give? Copy it from the result's text.";

/** The content without leading reasoning; empty if the reasoning does not end. */
function summaryOf(content: string): string {
  const afterReasoning = content.split("</think>").at(-1)!;
  return afterReasoning.trimStart().startsWith("<think>") ? "" : afterReasoning.trim();
}

/** Why the answer is unusable; undefined if it is usable. */
function faultOf({ message, finish }: ChatAnswer, summary: string, maxTokens: number): string | undefined {
  if (message.toolCalls || finish.reason === "tool_calls" || /^(<tool_call>|<\|tool_call)/.test(summary)) {
    return "called a tool";
  }
  if (finish.reason === "length") return `did not end within ${maxTokens} tokens (six sentences are enough)`;
  return summary === "" ? "was empty" : undefined;
}
