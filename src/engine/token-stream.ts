// The way up for one job's tokens: the engine pushes, one consumer pulls. Not a general stream: it has one
// reader, keeps what was pushed until it is read (an answer is at most a window long), and tells the engine
// when the reader leaves early.
import type { Generated } from "./job.ts";

export class TokenStream implements AsyncGenerator<Generated, void, undefined> {
  readonly #ready: Generated[] = [];
  #ended = false;
  #failure: Error | undefined;
  #wake: (() => void) | undefined;

  /** `leave` is called at most once, when the reader stops before the answer ended. */
  constructor(private readonly leave: () => Promise<void>) {}

  push(item: Generated): void {
    this.#ready.push(item);
    this.#wake?.();
  }

  end(failure?: Error): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#failure = failure;
    this.#wake?.();
  }

  async next(): Promise<IteratorResult<Generated, void>> {
    while (this.#ready.length === 0 && !this.#ended) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#wake = undefined;
    }
    const item = this.#ready.shift();
    if (item) return { done: false, value: item };
    const failure = this.#failure;
    this.#failure = undefined;
    if (failure) throw failure;
    return { done: true, value: undefined };
  }

  /** Resolves when the engine has let go of the job, so that the sequence may be used again. */
  async return(): Promise<IteratorResult<Generated, void>> {
    if (!this.#ended) await this.leave();
    return { done: true, value: undefined };
  }

  async throw(cause: unknown): Promise<IteratorResult<Generated, void>> {
    await this.return();
    throw cause;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return();
  }
}
