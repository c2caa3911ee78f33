// Who says what a prompt costs when a recorded run is played again: a ledger that counts without a model, or a real
// Chat. The latter computes every prompt for one token that nobody wants; what the recording says comes next
// instead, so the agent's own words are computed as prompt and not by generating them.

import type { Bill, Chat, ChatRequest, Message } from "../chat/chat.ts";
import { gatherAnswer } from "../context/collect-answer.ts";

export interface Price {
  readonly promptTokens: number;
  readonly bill: Bill;
  /** From request to first token; absent where nothing was computed. */
  readonly promptMs?: number;
}

export interface Till {
  bill(request: ChatRequest): Price | Promise<Price>;
  /** The answer that the recording gives to the request billed last. */
  speak(message: Message): void;
}

/** What any request to the Chat has beside its messages: reuse, repair, tenant. */
export type TillOptions = Omit<ChatRequest, "messages" | "tools" | "session" | "fork" | "maxTokens">;

export class ChatTill implements Till {
  constructor(
    private readonly chat: Chat,
    private readonly options: TillOptions = {},
  ) {}

  /** Rejects as the Chat does. */
  async bill(request: ChatRequest): Promise<Price> {
    const asked = { ...request, ...this.options, maxTokens: 1, temperature: 0 };
    const { finish } = await gatherAnswer(this.chat.chat(asked));
    const { promptTokens, bill, promptMs } = finish;
    return { promptTokens, bill, promptMs };
  }

  speak(): void {}
}
