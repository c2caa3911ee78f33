// Compiles a grammar in a worker thread first, to find out whether it can be compiled and in time: a bad schema
// aborts the WebAssembly instance, and some take minutes. The worker is ended if the compilation fails or takes too
// long. WebAssembly objects cannot be passed between threads, so the caller compiles the grammar again. One plan at a
// time; an idle worker is ended after a minute.
import { readFileSync } from "node:fs";
import { Worker } from "node:worker_threads";
import { type GrammarPlan, workerLibrary, workerText } from "./xgrammar.ts";

export interface Vocabulary {
  /** By id, in the byte-level alphabet; "" for tokens that are never allowed. */
  readonly words: readonly string[];
  /** Number of logits; ids from `words.length` on are unused. */
  readonly size: number;
  readonly stopTokens: readonly number[];
}

/** CPU milliseconds for one plan. On a busy machine up to `maxWallFactor` times as many may pass. */
export const compileLimitMs = 5000;
const maxWallFactor = 6;
/** Timeout for the start of the worker, which reads the vocabulary; 0.6 s on an idle machine. */
const startMs = 60_000;
/** A plan that takes longer is refused: its second compilation would block the event loop for that time. */
const maxBlockingMs = 1000;
const idleMs = 60_000;

type CompileResult = { readonly ms: number } | { readonly failure: string };

interface Started {
  readonly worker: Worker;
  /**
   * Resolves when the worker has read the vocabulary, with the file of its CPU time; or with the reason of a failure.
   */
  readonly ready: Promise<{ readonly clock?: string | undefined } | { readonly failure: string }>;
}

export class GrammarCheck {
  #worker: Started | undefined;
  #idle: NodeJS.Timeout | undefined;
  #last: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly vocabulary: Vocabulary,
    private readonly limitMs: number,
  ) {}

  /** Why the plan cannot be compiled, in words that follow a colon; undefined: it can. */
  refusal(plan: GrammarPlan): Promise<string | undefined> {
    const result = this.#last.then(() => this.#try(plan));
    this.#last = result.catch(() => undefined);
    return result;
  }

  /** Ends the worker. Pending plans are refused. */
  close(): void {
    clearTimeout(this.#idle);
    void this.#worker?.worker.terminate();
    this.#worker = undefined;
  }

  async #try(plan: GrammarPlan): Promise<string | undefined> {
    clearTimeout(this.#idle);
    this.#worker ??= this.#start();
    const { worker, ready } = this.#worker;
    const started = await ready;
    const result =
      "failure" in started
        ? started
        : await resultOf(worker, plan, { limitMs: this.limitMs, clock: started.clock });
    const maxMs = Math.min(maxBlockingMs, this.limitMs);
    if ("failure" in result || result.ms > maxMs) this.close();
    else this.#idle = setTimeout(() => this.close(), idleMs).unref();
    if ("failure" in result) return result.failure;
    return result.ms > maxMs
      ? `it takes ${Math.round(result.ms)} ms to compile, more than ${maxMs}`
      : undefined;
  }

  #start(): Started {
    const { words, size, stopTokens } = this.vocabulary;
    const worker = new Worker(workerText(), {
      eval: true,
      execArgv: [],
      workerData: { ...workerLibrary(), vocabulary: words, size, stopTokens },
    });
    worker.unref();
    // A worker that failed may emit another error while it is terminated.
    worker.on("error", () => {});
    return { worker, ready: readiness(worker) };
  }
}

async function readiness(worker: Worker): Promise<{ clock?: string } | { failure: string }> {
  const { next, settle } = nextMessage<{ clock?: string }>(worker);
  const timer = setTimeout(
    () => settle({ failure: `its worker is not ready within ${startMs} ms` }),
    startMs,
  );
  return next.finally(() => clearTimeout(timer));
}

/** `clock` absent: wall time counts instead of CPU time. */
async function resultOf(
  worker: Worker,
  plan: GrammarPlan,
  { limitMs, clock }: { readonly limitMs: number; readonly clock: string | undefined },
): Promise<CompileResult> {
  const { next, settle } = nextMessage<CompileResult>(worker);
  const start = computedMs(clock);
  let intervals = 0;
  const timer = setInterval(() => {
    intervals++;
    const isStarved = clock !== undefined && computedMs(clock) - start < limitMs * minCpuShare;
    if (!isStarved || intervals >= maxWallFactor)
      settle({ failure: `it is not compiled within ${limitMs} ms` });
  }, limitMs);
  worker.postMessage(plan);
  return next.finally(() => clearInterval(timer));
}

/** A smaller CPU share of the time means that the machine is busy: the plan is not to blame. */
const minCpuShare = 0.9;

function computedMs(clock: string | undefined): number {
  try {
    if (clock !== undefined) return Number(readFileSync(clock, "utf8").split(" ")[0]) / 1e6;
  } catch {
    // The thread has ended; the failure is reported by its exit.
  }
  return 0;
}

/** The next message of the worker, or the failure of the worker. `settle` resolves it early. */
function nextMessage<Value>(worker: Worker): {
  readonly next: Promise<Value | { readonly failure: string }>;
  readonly settle: (value: Value | { readonly failure: string }) => void;
} {
  let settle: (value: Value | { readonly failure: string }) => void = () => {};
  const settled = new Promise<Value | { readonly failure: string }>((resolve) => {
    settle = resolve;
  });
  const failed = (cause: Error) => settle({ failure: cause.message });
  const exited = () => settle({ failure: "its worker ended" });
  worker.on("message", settle).on("error", failed).on("exit", exited);
  const next = settled.finally(() => {
    worker.off("message", settle).off("error", failed).off("exit", exited);
  });
  return { next, settle };
}
