// What prompts would cost on a cache, counted without a model: which messages of a prompt are resident in front of
// the first edit, which survive behind it, which have to be computed. Whole messages, so a lower bound on reuse by a
// few tokens each. A fork uses what is resident and leaves it as it was.

import type { ChatRequest, Message } from "../chat/chat.ts";
import type { CountTokens } from "../context/block.ts";
import type { CostModel, PromptCost } from "./cost-model.ts";

interface Cells {
  readonly key: string;
  readonly tokens: number;
}

export class CacheSimulator implements CostModel {
  #resident: readonly Cells[] = [];

  constructor(private readonly count: CountTokens) {}

  /** Makes the prompt resident, unless it is a fork's. kept + relocated + computed = promptTokens. */
  cost({ messages, tools, session = "", fork }: ChatRequest): PromptCost {
    const offered: Message[] = tools ? [{ role: "system", content: JSON.stringify(tools) }] : [];
    const wanted = [...offered, ...messages].map((message) => this.#cells(message));
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

  /** The answer's cells, which generating it has made. */
  addAnswer(message: Message): void {
    this.#resident = [...this.#resident, this.#cells(message)];
  }

  #cells(message: Message): Cells {
    return { key: JSON.stringify(message), tokens: this.count(message) };
  }
}

function tokensOf(cells: readonly Cells[]): number {
  return cells.reduce((sum, { tokens }) => sum + tokens, 0);
}

function commonPrefix(resident: readonly Cells[], wanted: readonly Cells[]): number {
  const end = wanted.findIndex(({ key }, place) => resident[place]?.key !== key);
  return end < 0 ? wanted.length : end;
}

/** The messages of `wanted` that occur in both in the same order, of the most tokens together. */
function commonSequence(resident: readonly Cells[], wanted: readonly Cells[]): Cells[] {
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
  const common: Cells[] = [];
  for (let i = 0, j = 0; i < resident.length && j < wanted.length; ) {
    const here = best[i * width + j]!;
    if (here === best[(i + 1) * width + j]) i++;
    else if (here === best[i * width + j + 1]) j++;
    else {
      common.push(wanted[j]!);
      i++;
      j++;
    }
  }
  return common;
}
