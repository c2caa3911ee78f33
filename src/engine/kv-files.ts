// KV files that are being saved or loaded. They run concurrently with steps, so close() waits for them, and so may a request
// that needs the pages of a sequence that is being saved. The file format is native (docs/design.md, KV files).
import { pocketError } from "../errors.ts";
import type { Runner, SequenceId } from "./addon.ts";
import type { Sequence } from "./sequence.ts";

export class KvFiles {
  readonly #pending = new Set<Promise<unknown>>();

  constructor(private readonly runner: Runner) {}

  async save(sequence: Sequence, file: string): Promise<void> {
    if (sequence.fault) throw sequence.fault;
    await this.#track(this.runner.save(sequence.id, file));
  }

  async load(file: string): Promise<SequenceId> {
    return this.#track(this.runner.load(file));
  }

  get pending(): boolean {
    return this.#pending.size > 0;
  }

  /** Resolves when one pending file has settled, with or without an error. Throws BAD_ARGUMENT if none is pending. */
  async next(): Promise<void> {
    if (!this.pending) throw pocketError("BAD_ARGUMENT", "No file is pending.");
    await Promise.race(Array.from(this.#pending, (one) => one.catch(() => undefined)));
  }

  async all(): Promise<void> {
    await Promise.allSettled(this.#pending);
  }

  #track<T>(work: Promise<T>): Promise<T> {
    const tracked = work.finally(() => this.#pending.delete(tracked));
    this.#pending.add(tracked);
    return tracked;
  }
}
