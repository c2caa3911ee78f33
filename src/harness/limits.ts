// The limits that every harness runs under, the same for all so that they can be compared, and what the agent is
// told when it meets one. Notices stand behind a request and are never stored.
import type { Message } from "../chat/chat.ts";

export interface Limits {
  /** Tokens of prompt and answer together. */
  readonly window: number;
  /** Calls of the agent, dropped answers included. Default: 100. */
  readonly maxTurns: number;
  /** Of one answer. Default: 4096, or a quarter of the window where that is less. */
  readonly answerTokens: number;
  /** From this part of the window on a final answer is demanded. Default: 0.95. */
  readonly finalFraction: number;
}

export function limitsOf(window: number, given: Partial<Omit<Limits, "window">> = {}): Limits {
  const answerTokens = Math.min(4096, Math.floor(window / 4));
  return { window, maxTurns: 100, answerTokens, finalFraction: 0.95, ...given };
}

/** Behind the last request of a run that has to end. */
export const finalNotice: Message = {
  role: "user",
  content:
    "There is no room for further steps. Call no more tools. Give your final answer now, from what you know so far; if you are not sure, give the most likely one.",
};

/** Behind a request whose answer was dropped. */
export function retryNotice(why: string): Message {
  return {
    role: "user",
    content: `Your last answer ${why} and was not kept. Answer again, shorter: one step, or the final answer.`,
  };
}

/** In place of a tool result that the window cannot take. */
export function tooLarge(name: string, tokens: number, left: number): string {
  return `The result of ${name} has about ${tokens} tokens and ${Math.max(0, left)} are left, so it was not added. Ask for less, or make room first.`;
}

/** In place of a result that the context has already. */
export function repeatedCall(name: string): string {
  return `You have made this very call of ${name} before, and its result is the same; it stands above and is not repeated. Do the next step of the task with other arguments, or end the task.`;
}
