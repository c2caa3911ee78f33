// Whether a grammar can be compiled, and in time, tried where it harms nobody: in a worker thread, which is ended
// when it fails or takes too long. WebAssembly objects cannot be handed from thread to thread, so whoever asks
// compiles once more on its own. One plan at a time; the worker stays for the next one, and goes when idle.
import { Worker } from "node:worker_threads";
import { type GrammarPlan, workerLibrary, workerText } from "./xgrammar.ts";

export interface Vocabulary {
  /** By id, in the byte-level alphabet; "" for what may never be sampled. */
  readonly words: readonly string[];
  /** Logits in a row; ids from `words.length` on stand for nothing. */
  readonly size: number;
  readonly stopTokens: readonly number[];
}

/** Milliseconds, the worker's start and its reading of the vocabulary included. */
export const proofMs = 5000;
/** What takes longer than this would hold up every other answer when it is compiled again outside. */
const compileMs = 1500;
const idleMs = 60_000;

type Answer = { readonly ms: number } | { readonly failure: string };

export class Proof {
  #worker: Worker | undefined;
  #idle: NodeJS.Timeout | undefined;
  #last: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly vocabulary: Vocabulary,
    private readonly limitMs: number,
  ) {}

  /** Why it cannot be compiled, in words that follow a colon; undefined: it can. */
  objection(plan: GrammarPlan): Promise<string | undefined> {
    const result = this.#last.then(() => this.#try(plan));
    this.#last = result.catch(() => undefined);
    return result;
  }

  /** Ends the worker. Plans under way are refused. */
  close(): void {
    clearTimeout(this.#idle);
    void this.#worker?.terminate();
    this.#worker = undefined;
  }

  async #try(plan: GrammarPlan): Promise<string | undefined> {
    clearTimeout(this.#idle);
    this.#worker ??= this.#start();
    const answer = await answerOf(this.#worker, plan, this.limitMs);
    if ("failure" in answer || answer.ms > compileMs) this.close();
    else this.#idle = setTimeout(() => this.close(), idleMs).unref();
    if ("failure" in answer) return answer.failure;
    return answer.ms > compileMs
      ? `it takes ${Math.round(answer.ms)} ms to compile, more than ${compileMs}`
      : undefined;
  }

  #start(): Worker {
    const { words, size, stopTokens } = this.vocabulary;
    const worker = new Worker(workerText(), {
      eval: true,
      execArgv: [],
      workerData: { ...workerLibrary(), vocabulary: words, size, stopTokens },
    });
    worker.unref();
    // A worker that failed may fail once more while it is being ended.
    worker.on("error", () => {});
    return worker;
  }
}

/** Settles once, whatever becomes of the worker. */
async function answerOf(worker: Worker, plan: GrammarPlan, limitMs: number): Promise<Answer> {
  let settle: (answer: Answer) => void = () => {};
  const answer = new Promise<Answer>((resolve) => {
    settle = resolve;
  });
  const failed = (cause: Error) => settle({ failure: cause.message });
  const exited = () => settle({ failure: "its worker ended" });
  const timer = setTimeout(() => settle({ failure: `it is not compiled within ${limitMs} ms` }), limitMs);
  worker.on("message", settle).on("error", failed).on("exit", exited);
  worker.postMessage(plan);
  try {
    return await answer;
  } finally {
    clearTimeout(timer);
    worker.off("message", settle).off("error", failed).off("exit", exited);
  }
}
