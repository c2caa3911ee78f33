// The generated tokens of one job: the engine pushes, one consumer pulls. Tokens are buffered until they are read (an
// answer is at most as long as the context). A consumer that stops early cancels the job.
import type { Generated } from "./job.ts";

export class TokenStream implements AsyncGenerator<Generated, void, undefined> {
  readonly #buffer: Generated[] = [];
  #ended = false;
  #failure: Error | undefined;
  #wake: (() => void) | undefined;

  /** `cancel` is called at most once, when the consumer stops before the answer ended. */
  constructor(private readonly cancel: () => Promise<void>) {}

  push(item: Generated): void {
    this.#buffer.push(item);
    this.#wake?.();
  }

  end(failure?: Error): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#failure = failure;
    this.#wake?.();
  }

  async next(): Promise<IteratorResult<Generated, void>> {
    while (this.#buffer.length === 0 && !this.#ended) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
      this.#wake = undefined;
    }
    const item = this.#buffer.shift();
    if (item) return { done: false, value: item };
    const failure = this.#failure;
    this.#failure = undefined;
    if (failure) throw failure;
    return { done: true, value: undefined };
  }

  /** Resolves when the job has ended, so that the sequence may be used again. */
  async return(): Promise<IteratorResult<Generated, void>> {
    if (!this.#ended) await this.cancel();
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
