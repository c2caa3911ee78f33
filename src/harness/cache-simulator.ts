// Counts what prompts would cost on a KV cache, without a model: which messages of a prompt are resident
// before the first edit (kept), which are resident after it (relocated), which must be computed. It works on
// whole messages, so it underestimates reuse by a few tokens per edit. A fork reads the resident messages and
// leaves them unchanged.

import type { ChatRequest, Message } from "../chat/chat.ts";
import type { CountTokens } from "../context/block.ts";
import type { CostModel, PromptCost } from "./cost-model.ts";

/** A message in the cache. `key`: its JSON; equal keys are equal messages. */
interface CachedMessage {
  readonly key: string;
  readonly tokens: number;
}

export class CacheSimulator implements CostModel {
  #resident: readonly CachedMessage[] = [];

  constructor(private readonly count: CountTokens) {}

  /** Makes the prompt resident, unless the request is a fork. kept + relocated + computed = promptTokens. */
  cost({ messages, tools, session = "", fork }: ChatRequest): PromptCost {
    const toolsMessage: Message[] = tools ? [{ role: "system", content: JSON.stringify(tools) }] : [];
    const wanted = [...toolsMessage, ...messages].map((message) => this.#cached(message));
    const promptTokens = tokensOf(wanted);
    const prefix = commonPrefix(this.#resident, wanted);
    const kept = tokensOf(wanted.slice(0, prefix));
    const relocated = tokensOf(commonSequence(this.#resident.slice(prefix), wanted.slice(prefix)));
    const reason =
      prefix === this.#resident.length
        ? "Nothing was edited."
        : `Message ${prefix} is the first that differs.`;
    if (!fork) this.#resident = wanted;
    const cacheUsage = {
      session,
      kept,
      relocated,
      computed: promptTokens - kept - relocated,
      stale: relocated,
      reason,
    };
    return { promptTokens, cacheUsage };
  }

  /** Makes the answer resident: generating it has computed its cells. */
  addAnswer(message: Message): void {
    this.#resident = [...this.#resident, this.#cached(message)];
  }

  #cached(message: Message): CachedMessage {
    return { key: JSON.stringify(message), tokens: this.count(message) };
  }
}

function tokensOf(cells: readonly CachedMessage[]): number {
  return cells.reduce((sum, { tokens }) => sum + tokens, 0);
}

function commonPrefix(resident: readonly CachedMessage[], wanted: readonly CachedMessage[]): number {
  const end = wanted.findIndex(({ key }, index) => resident[index]?.key !== key);
  return end < 0 ? wanted.length : end;
}

/** The common subsequence with the most tokens. */
function commonSequence(
  resident: readonly CachedMessage[],
  wanted: readonly CachedMessage[],
): CachedMessage[] {
  const width = wanted.length + 1;
  const best = new Float64Array((resident.length + 1) * width);
  for (let i = resident.length - 1; i >= 0; i--) {
    for (let j = wanted.length - 1; j >= 0; j--) {
      const skipped = Math.max(best[(i + 1) * width + j]!, best[i * width + j + 1]!);
      const isSame = resident[i]!.key === wanted[j]!.key;
      best[i * width + j] = isSame
        ? Math.max(skipped, wanted[j]!.tokens + best[(i + 1) * width + j + 1]!)
        : skipped;
    }
  }
  const common: CachedMessage[] = [];
  for (let i = 0, j = 0; i < resident.length && j < wanted.length; ) {
    const current = best[i * width + j]!;
    if (current === best[(i + 1) * width + j]) i++;
    else if (current === best[i * width + j + 1]) j++;
    else {
      common.push(wanted[j]!);
      i++;
      j++;
    }
  }
  return common;
}
