// One condition of the grid measured: the arms that it has and, in turn with them, the ideal, which appends as many
// tokens as the summary has to a context of the same length. Chains, and the row of the issue, likewise.
import type { Message } from "../../src/chat/chat.ts";
import {
  type Exchange,
  exchangesOf,
  fitting,
  memoryOf,
  pieces,
  promptOf,
  removalOf,
  summaryText,
} from "./conversation.ts";
import { arms, type Cell, type Chain } from "./grid.ts";
import type { InProcessServer, Reading } from "./in-process-server.ts";

/** Readings by the name of their arm; `ideal` is one. */
export type Readings = ReadonlyMap<string, readonly Reading[]>;

export interface Measured {
  /** Tokens that went. */
  readonly removed: number;
  /** Tokens that came: the summary with the marks of its message. */
  readonly inserted: number;
  readonly readings: Readings;
}

export interface ChainReading extends Reading {
  /** Distinct shifts of the session's cells after it. */
  readonly shifts: number;
}

export class Measurer {
  readonly #exchanges: readonly Exchange[];
  readonly #base: readonly number[];
  #summaries = 0;

  /** `text` gives the conversation its content. */
  constructor(
    private readonly server: InProcessServer,
    text: string,
    context: number,
  ) {
    const all = exchangesOf(text, (line) => server.countText(line), Math.ceil(context / 200));
    const fit = fitting(all, context, (messages) => server.tokensOf(messages).length);
    // One more than fits, so that the first `context` tokens are all there.
    this.#exchanges = all.slice(0, fit.length + 1);
    this.#base = server.tokensOf(promptOf(this.#exchanges));
  }

  /** Once, before anything else. */
  prefill(): Promise<Reading> {
    return this.server.prefill(promptOf(this.#exchanges));
  }

  /** Cells of one condition. Undefined when the summary would be no shorter than what it replaces. */
  async condition(cells: readonly Cell[]): Promise<Measured | undefined> {
    const { context, place, share, summary } = cells[0]!;
    const exchanges = this.#fitting(context);
    const base = promptOf(exchanges);
    const { start, end } = removalOf(exchanges.length, place, share);
    const rest = promptOf([...exchanges.slice(0, start), ...exchanges.slice(end)]);
    const removed = this.#length(base) - this.#length(rest);
    const edited = (memory: Message) =>
      promptOf([...exchanges.slice(0, start), memory, ...exchanges.slice(end)]);
    const inserted = this.#length(edited(this.#memory(summary))) - this.#length(rest);
    if (inserted >= removed) return undefined;
    const readings = new Map<string, Reading[]>();
    const add = (name: string, reading: Reading) =>
      readings.set(name, [...(readings.get(name) ?? []), reading]);
    for (let round = 0; round < Math.max(...cells.map(({ repeat }) => repeat)); round++) {
      for (const { arm, repeat } of cells) {
        if (round >= repeat) continue;
        const prompt = edited(this.#memory(summary));
        const measure = (session: string) => this.server.readArm(prompt, session, arm);
        add(arm.name, await this.server.withSession(base, measure));
      }
      // Not more than a compaction computes: the marks of a message may be where they were.
      const count = readings.get(arms.suffix.name)?.[0]?.cacheUsage.computed ?? inserted;
      add("ideal", await this.ideal(this.#length(rest), count));
    }
    return { removed, inserted, readings };
  }

  /** As many tokens appended to a context of that length. */
  ideal(context: number, inserted: number, isHttp = false): Promise<Reading> {
    const held = this.#base.slice(0, context);
    const prompt = [...held, ...this.#fresh(inserted, context)];
    const measure = (session: string) => this.server.readArm(prompt, session, arms.suffix, isHttp);
    return this.server.withSession(held, measure);
  }

  /** A reading per compaction. Undefined where there are fewer exchanges than compactions. */
  async chain({ context, length, share, summary }: Chain): Promise<ChainReading[] | undefined> {
    const exchanges = this.#fitting(context);
    const removals = pieces(removalOf(exchanges.length, "front", share), length);
    if (!removals) return undefined;
    return this.server.withSession(promptOf(exchanges), async (session) => {
      const memories: Message[] = [];
      const readings: ChainReading[] = [];
      for (const { end } of removals) {
        memories.push(this.#memory(summary));
        const prompt = promptOf([...memories, ...exchanges.slice(end)]);
        const reading = await this.server.readArm(prompt, session, arms.suffix);
        readings.push({ ...reading, shifts: this.server.shifts(session) });
      }
      return readings;
    });
  }

  /**
   * The row of the issue, over HTTP: of the first `context` tokens of the conversation, [start, end) replaced by
   * `count` others; and in turn with it the ideal, and the same tokens in their place with nothing behind them.
   */
  async splice(context: number, { start, end, count }: Splice, repeat: number): Promise<Readings> {
    const base = this.#base.slice(0, context);
    const suffix: Reading[] = [];
    const ideal: Reading[] = [];
    const alone: Reading[] = [];
    const over = (held: readonly number[], prompt: readonly number[]) =>
      this.server.withSession(held, (session) => this.server.readArm(prompt, session, arms.suffix, true));
    for (let round = 0; round < repeat; round++) {
      const edited = [...base.slice(0, start), ...this.#fresh(count, start), ...base.slice(end)];
      suffix.push(await over(base, edited));
      ideal.push(await this.ideal(context - (end - start), count, true));
      alone.push(await over(base.slice(0, start), edited.slice(0, start + count)));
    }
    return new Map([
      ["suffix", suffix],
      ["ideal", ideal],
      ["in place, nothing behind", alone],
    ]);
  }

  /** Prompt tokens of the row of the issue, before and after, for a peer. */
  spliced(context: number, { start, end, count }: Splice): Compacted {
    const base = this.#base.slice(0, context);
    const edited = [...base.slice(0, start), ...this.#fresh(count, start), ...base.slice(end)];
    return { base, edited, inserted: count };
  }

  /** Prompt tokens before and after the compaction of a cell, for a peer. */
  compacted({ context, place, share, summary }: Cell): Compacted {
    const exchanges = this.#fitting(context);
    const { start, end } = removalOf(exchanges.length, place, share);
    const [front, rest] = [exchanges.slice(0, start), exchanges.slice(end)];
    const edited = this.server.tokensOf(promptOf([...front, this.#memory(summary), ...rest]));
    const inserted = edited.length - this.#length(promptOf([...front, ...rest]));
    return { base: this.server.tokensOf(promptOf(exchanges)), edited, inserted };
  }

  #fitting(context: number): Exchange[] {
    return fitting(this.#exchanges, context, (messages) => this.#length(messages));
  }

  #length(messages: readonly Message[]): number {
    return this.server.tokensOf(messages).length;
  }

  /** Another text each time, so that no earlier measurement helps a later one. */
  #memory(tokens: number): Message {
    return memoryOf(summaryText(tokens, ++this.#summaries, (text) => this.server.countText(text)));
  }

  /** Ids of the conversation in another order; the first one differs from the id at index `at`. */
  #fresh(count: number, at: number): number[] {
    const ids = this.#base;
    let from = 17 * ++this.#summaries;
    while (ids[from % ids.length] === ids[at]) from++;
    return Array.from({ length: count }, (_, place) => ids[(from + place * 31) % ids.length]!);
  }
}

export interface Compacted {
  readonly base: readonly number[];
  readonly edited: readonly number[];
  readonly inserted: number;
}

export interface Splice {
  readonly start: number;
  readonly end: number;
  readonly count: number;
}
