// Wraps a native or scripted Runner and injects seeded faults, for stress tests and the soak. Only faults that the
// native runner may have: a step that throws has filled no cell, a refused splice has changed nothing, and cuts,
// releases and the end of a step never fail.
import type { CellSplice, Runner, SequenceId, StepEntry, StepResult } from "../../src/engine/addon.ts";
import { pocketError } from "../../src/errors.ts";

/** Probabilities per call, 0 … 1. */
export interface Faults {
  readonly seed: number;
  /** The step throws before it computes. */
  readonly step?: number;
  /** The step takes `slowMs` longer. */
  readonly slow?: number;
  readonly slowMs?: number;
  /** A splice that opens cells is refused with CACHE_FULL. */
  readonly splice?: number;
  /** Saving fails with DISK_FULL. */
  readonly save?: number;
  /** Loading fails with KV_FILE_REFUSED. */
  readonly load?: number;
}

export interface FaultCounts {
  steps: number;
  slow: number;
  splices: number;
  saves: number;
  loads: number;
}

/** `counts`: number of injected faults by kind; `stop()` ends the injection. */
export interface FaultyRunner extends Runner {
  readonly counts: Readonly<FaultCounts>;
  stop(): void;
}

export function faultyRunner(runner: Runner, faults: Faults): FaultyRunner {
  const counts: FaultCounts = { steps: 0, slow: 0, splices: 0, saves: 0, loads: 0 };
  const random = mulberry(faults.seed);
  let on = true;
  const strikes = (probability: number | undefined) => on && random() < (probability ?? 0);
  const faulty: Partial<Runner> & Pick<FaultyRunner, "counts" | "stop"> = {
    counts,
    stop: () => {
      on = false;
    },
    splice(id: SequenceId, splices: readonly CellSplice[]) {
      if (splices.some(({ count }) => count > 0) && strikes(faults.splice)) {
        counts.splices++;
        throw pocketError("CACHE_FULL", 0, runner.describe().pageSize, 1);
      }
      runner.splice(id, splices);
    },
    async step(entries: readonly StepEntry[]): Promise<StepResult> {
      if (strikes(faults.slow)) {
        counts.slow++;
        await new Promise((resolve) => setTimeout(resolve, faults.slowMs ?? 20));
      }
      if (strikes(faults.step)) {
        counts.steps++;
        throw pocketError("RUNTIME_FAILED", "an injected fault");
      }
      return runner.step(entries);
    },
    async save(id: SequenceId, file: string) {
      if (strikes(faults.save)) {
        counts.saves++;
        throw pocketError("DISK_FULL", file, "an injected fault");
      }
      await runner.save(id, file);
    },
    async load(file: string) {
      if (strikes(faults.load)) {
        counts.loads++;
        throw pocketError("KV_FILE_REFUSED", file, "an injected fault");
      }
      return runner.load(file);
    },
  };
  return new Proxy(runner, {
    get(target, key) {
      const own = Reflect.get(faulty, key) as unknown;
      if (own !== undefined) return own;
      const value = Reflect.get(target, key) as unknown;
      return typeof value === "function" ? value.bind(target) : value;
    },
  }) as FaultyRunner;
}

/** Seeded generator of numbers in [0, 1) (mulberry32). */
export function mulberry(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
}
