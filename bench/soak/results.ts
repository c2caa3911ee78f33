// What all clients of a soak saw: counts, the codes of errors, sentences about what should not have been, and
// the answers to be asked again.
import type { Random } from "../../test/support/random.ts";

export interface Kept {
  readonly tokens: readonly number[];
  readonly maxTokens: number;
  readonly text: string;
  readonly finish: string;
}

/** Errors that a server under pressure and with a faulty runner may give; all others are wrong. */
const expectedErrors = new Set([
  ...["queue_full", "cache_full", "cancelled", "runtime_failed"],
  ...["cache_too_small", "context_length_exceeded"],
]);

type Count = "requests" | "answered" | "refused" | "left" | "deletes";

export class SoakResults {
  readonly counts: Record<Count, number> = { requests: 0, answered: 0, refused: 0, left: 0, deletes: 0 };
  readonly errors = new Map<string, number>();
  readonly wrongs: string[] = [];
  readonly kept: Kept[] = [];
  readonly bills = { kept: 0, relocated: 0, computed: 0 };
  #offered = 0;

  /** At most so many answers are kept, spread over the whole time. */
  constructor(
    private readonly maxKept: number,
    private readonly random: Random,
  ) {}

  add(count: Count): void {
    this.counts[count]++;
  }

  error(code: string): void {
    this.errors.set(code, (this.errors.get(code) ?? 0) + 1);
    if (!expectedErrors.has(code)) this.wrong(`a request ended with ${code}`);
  }

  wrong(sentence: string): void {
    this.wrongs.push(sentence);
  }

  cost({ kept, relocated, computed }: { kept: number; relocated: number; computed: number }): void {
    this.bills.kept += kept;
    this.bills.relocated += relocated;
    this.bills.computed += computed;
  }

  /** The n-th offer takes a place with probability maxKept / n, so every answer has the same chance. */
  keep(answer: Kept): void {
    this.#offered++;
    if (this.kept.length < this.maxKept) this.kept.push(answer);
    else {
      const index = Math.floor(this.random() * this.#offered);
      if (index < this.maxKept) this.kept[index] = answer;
    }
  }
}
