// The limits of a run, the same for every harness so that harnesses can be compared, and the notices that
// tell the agent about them. A notice ends a request and is never stored.
import type { Message } from "../chat/chat.ts";

export interface Limits {
  /** Tokens of prompt and answer together. */
  readonly window: number;
  /** Calls of the agent, including dropped answers. Default: 100. */
  readonly maxTurns: number;
  /** Maximum tokens of one answer. Default: 4096, or a quarter of the window if that is less. */
  readonly answerTokens: number;
  /** Fraction of the window from which on a final answer is demanded. Default: 0.95. */
  readonly finalFraction: number;
}

export function limitsOf(window: number, given: Partial<Omit<Limits, "window">> = {}): Limits {
  const answerTokens = Math.min(4096, Math.floor(window / 4));
  return { window, maxTurns: 100, answerTokens, finalFraction: 0.95, ...given };
}

/** Ends the last request of a run that reached a limit. */
export const finalNotice: Message = {
  role: "user",
  content:
    "There is no room for further steps. Call no more tools. Give your final answer now, from what you know so far; if you are not sure, give the most likely one.",
};

/** Ends the request after a dropped answer. */
export function retryNotice(why: string): Message {
  return {
    role: "user",
    content: `Your last answer ${why} and was not kept. Answer again, shorter: one step, or the final answer.`,
  };
}

/** Replaces a tool result that does not fit in the window. */
export function tooLarge(name: string, tokens: number, left: number): string {
  return `The result of ${name} has about ${tokens} tokens and ${Math.max(0, left)} are left, so it was not added. Ask for less, or make room first.`;
}

/** Replaces the result of a call that was repeated with the same result. */
export function repeatedCall(name: string): string {
  return `You have made this very call of ${name} before, and its result is the same; it stands above and is not repeated. Do the next step of the task with other arguments, or end the task.`;
}
