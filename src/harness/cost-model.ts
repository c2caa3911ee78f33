// Who says what a prompt costs when a recorded run is played again: a ledger that counts without a model, or a real
// Chat. The latter computes every prompt for one token that nobody wants; what the recording says comes next
// instead, so the agent's own words are computed as prompt and not by generating them.

import type { CacheUsage, Chat, ChatRequest, Message } from "../chat/chat.ts";
import { collectAnswer } from "../context/collect-answer.ts";

export interface PromptCost {
  readonly promptTokens: number;
  readonly cacheUsage: CacheUsage;
  /** From request to first token; absent where nothing was computed. */
  readonly promptMs?: number;
}

export interface CostModel {
  cost(request: ChatRequest): PromptCost | Promise<PromptCost>;
  /** The answer that the recording gives to the request billed last. */
  addAnswer(message: Message): void;
}

/** What any request to the Chat has beside its messages: reuse, repair, tenant. */
export type CostModelOptions = Omit<ChatRequest, "messages" | "tools" | "session" | "fork" | "maxTokens">;

export class ChatCostModel implements CostModel {
  constructor(
    private readonly chat: Chat,
    private readonly options: CostModelOptions = {},
  ) {}

  /** Rejects as the Chat does. */
  async cost(request: ChatRequest): Promise<PromptCost> {
    const asked = { ...request, ...this.options, maxTokens: 1, temperature: 0 };
    const { finish } = await collectAnswer(this.chat.chat(asked));
    const { promptTokens, cacheUsage, promptMs } = finish;
    return { promptTokens, cacheUsage, promptMs };
  }

  addAnswer(): void {}
}
