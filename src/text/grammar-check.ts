// Whether a grammar can be compiled, and in time, tried where it harms nobody: in a worker thread, which is ended
// when it fails or takes too long. WebAssembly objects cannot be handed from thread to thread, so whoever asks
// compiles once more on its own. One plan at a time; the worker stays for the next one, and goes when idle.
import { readFileSync } from "node:fs";
import { Worker } from "node:worker_threads";
import { type GrammarPlan, workerLibrary, workerText } from "./xgrammar.ts";

export interface Vocabulary {
  /** By id, in the byte-level alphabet; "" for what may never be sampled. */
  readonly words: readonly string[];
  /** Logits in a row; ids from `words.length` on stand for nothing. */
  readonly size: number;
  readonly stopTokens: readonly number[];
}

/** Milliseconds of computing for one plan. On a busy machine many more may go by, up to `patience` times as many. */
export const compileLimitMs = 5000;
const patience = 6;
/** For the worker's start and its reading of the vocabulary, 0.6 s where nothing else runs. */
const startMs = 60_000;
/** What takes longer than this would hold up every other answer when it is compiled again outside. */
const compileMs = 1000;
const idleMs = 60_000;

type CompileResult = { readonly ms: number } | { readonly failure: string };

interface Started {
  readonly worker: Worker;
  /** Settles once it has read the vocabulary, with the file of its computing time; or why it has not. */
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

  /** Why it cannot be compiled, in words that follow a colon; undefined: it can. */
  objection(plan: GrammarPlan): Promise<string | undefined> {
    const result = this.#last.then(() => this.#try(plan));
    this.#last = result.catch(() => undefined);
    return result;
  }

  /** Ends the worker. Plans under way are refused. */
  close(): void {
    clearTimeout(this.#idle);
    void this.#worker?.worker.terminate();
    this.#worker = undefined;
  }

  async #try(plan: GrammarPlan): Promise<string | undefined> {
    clearTimeout(this.#idle);
    this.#worker ??= this.#start();
    const { worker, ready } = this.#worker;
    const begun = await ready;
    const answer =
      "failure" in begun
        ? begun
        : await answerOf(worker, plan, { limitMs: this.limitMs, clock: begun.clock });
    const most = Math.min(compileMs, this.limitMs);
    if ("failure" in answer || answer.ms > most) this.close();
    else this.#idle = setTimeout(() => this.close(), idleMs).unref();
    if ("failure" in answer) return answer.failure;
    return answer.ms > most
      ? `it takes ${Math.round(answer.ms)} ms to compile, more than ${most}`
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
    // A worker that failed may fail once more while it is being ended.
    worker.on("error", () => {});
    return { worker, ready: readiness(worker) };
  }
}

async function readiness(worker: Worker): Promise<{ clock?: string } | { failure: string }> {
  const { next, settle } = firstWord<{ clock?: string }>(worker);
  const timer = setTimeout(
    () => settle({ failure: `its worker is not ready within ${startMs} ms` }),
    startMs,
  );
  return next.finally(() => clearTimeout(timer));
}

/** `clock` absent: all time that goes by counts. */
async function answerOf(
  worker: Worker,
  plan: GrammarPlan,
  { limitMs, clock }: { readonly limitMs: number; readonly clock: string | undefined },
): Promise<CompileResult> {
  const { next, settle } = firstWord<CompileResult>(worker);
  const begun = computedMs(clock);
  let waited = 0;
  const timer = setInterval(() => {
    waited++;
    const starves = clock !== undefined && computedMs(clock) - begun < limitMs * busy;
    if (!starves || waited >= patience) settle({ failure: `it is not compiled within ${limitMs} ms` });
  }, limitMs);
  worker.postMessage(plan);
  return next.finally(() => clearInterval(timer));
}

/** Less than this part of the time means that the machine, and not the plan, is what takes it. */
const busy = 0.9;

function computedMs(clock: string | undefined): number {
  try {
    if (clock !== undefined) return Number(readFileSync(clock, "utf8").split(" ")[0]) / 1e6;
  } catch {
    // the thread is gone, and the answer says so
  }
  return 0;
}

/** The next message of the worker. Settles once, whatever becomes of it. */
function firstWord<Word>(worker: Worker): {
  readonly next: Promise<Word | { readonly failure: string }>;
  readonly settle: (word: Word | { readonly failure: string }) => void;
} {
  let settle: (word: Word | { readonly failure: string }) => void = () => {};
  const said = new Promise<Word | { readonly failure: string }>((resolve) => {
    settle = resolve;
  });
  const failed = (cause: Error) => settle({ failure: cause.message });
  const exited = () => settle({ failure: "its worker ended" });
  worker.on("message", settle).on("error", failed).on("exit", exited);
  const next = said.finally(() => {
    worker.off("message", settle).off("error", failed).off("exit", exited);
  });
  return { next, settle };
}
