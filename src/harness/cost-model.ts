// What a prompt costs when a recorded run is replayed: a CacheSimulator counts it without a model,
// ChatCostModel asks a real Chat. The Chat computes each prompt and generates one token, which is discarded,
// because the recording has the answer. The agent's own words are therefore computed as prompt tokens, not
// generated.

import type { CacheUsage, Chat, ChatRequest, Message } from "../chat/chat.ts";
import { collectAnswer } from "../context/collect-answer.ts";

export interface PromptCost {
  readonly promptTokens: number;
  readonly cacheUsage: CacheUsage;
  /** Milliseconds from request to first token. Absent if no model was asked. */
  readonly promptMs?: number;
}

export interface CostModel {
  cost(request: ChatRequest): PromptCost | Promise<PromptCost>;
  /** The recorded answer to the request that `cost` saw last. */
  addAnswer(message: Message): void;
}

/** Added to every request: reuse, repair, tenant. */
export type CostModelOptions = Omit<ChatRequest, "messages" | "tools" | "session" | "fork" | "maxTokens">;

export class ChatCostModel implements CostModel {
  constructor(
    private readonly chat: Chat,
    private readonly options: CostModelOptions = {},
  ) {}

  /** Rejects with errors of the Chat. */
  async cost(request: ChatRequest): Promise<PromptCost> {
    const probe = { ...request, ...this.options, maxTokens: 1, temperature: 0 };
    const { finish } = await collectAnswer(this.chat.chat(probe));
    const { promptTokens, cacheUsage, promptMs } = finish;
    return { promptTokens, cacheUsage, promptMs };
  }

  addAnswer(): void {}
}
