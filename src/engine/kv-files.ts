// KV files under way. Saving and loading run beside the steps, so closing has to wait for them, and so may an
// answer that needs the pages which a file being written still holds. It knows no format: that is native.
import { pocketError } from "../errors.ts";
import type { Runner, SequenceId } from "./addon.ts";
import type { Sequence } from "./sequence.ts";

export class KvFiles {
  readonly #underWay = new Set<Promise<unknown>>();

  constructor(private readonly runner: Runner) {}

  async save(sequence: Sequence, file: string): Promise<void> {
    if (sequence.fault) throw sequence.fault;
    await this.#track(this.runner.save(sequence.id, file));
  }

  async load(file: string): Promise<SequenceId> {
    return this.#track(this.runner.load(file));
  }

  get any(): boolean {
    return this.#underWay.size > 0;
  }

  /** Resolves when one of them has ended, well or not. There must be one. */
  async next(): Promise<void> {
    if (!this.any) throw pocketError("BAD_ARGUMENT", "No file is under way to wait for.");
    await Promise.race(Array.from(this.#underWay, (one) => one.catch(() => undefined)));
  }

  async all(): Promise<void> {
    await Promise.allSettled(this.#underWay);
  }

  #track<T>(work: Promise<T>): Promise<T> {
    const tracked = work.finally(() => this.#underWay.delete(tracked));
    this.#underWay.add(tracked);
    return tracked;
  }
}
