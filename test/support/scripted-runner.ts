// A Runner in plain arrays for tests of scheduling and faults: cells are {token, filled}. The model is a hash of all
// tokens before the sampled one, so an answer is right only if every cell was filled when it was sampled.
import type {
  CellSplice,
  Cells,
  Runner,
  RunnerInfo,
  RunnerStats,
  SampledToken,
  SequenceInfo,
  StepEntry,
  StepOutcome,
  StepResult,
} from "../../src/engine/addon.ts";
import { pocketError } from "../../src/errors.ts";

interface Cell {
  token: number;
  filled: boolean;
}

export const scriptedVocab = 1000;

/** The token that follows `tokens`. */
export function following(tokens: readonly number[]): number {
  let hash = 17;
  for (const token of tokens) hash = (hash * 31 + token + 7) % 1_000_003;
  return hash % scriptedVocab;
}

/** `token`, or with a mask the next token that it allows, modulo `vocab`. */
export function allowedFrom(token: number, mask: Int32Array | undefined, vocab: number): number {
  if (!mask) return token;
  const isAllowed = (id: number) => ((mask[id >> 5] ?? 0) >>> (id & 31)) & 1;
  for (let step = 0; step < vocab; step++) {
    const id = (token + step) % vocab;
    if (isAllowed(id)) return id;
  }
  throw new Error("The mask allows nothing.");
}

function sampledToken(token: number): SampledToken {
  return { token, logprob: 0, topTokens: new Int32Array(0), topLogprobs: new Float32Array(0) };
}

export class ScriptedRunner implements Runner {
  readonly sequences = new Map<number, Cell[]>();
  /** Entries of every step so far. */
  readonly log: StepEntry[][] = [];
  /** Called before each step computes; may throw or wait. */
  before: (step: number) => Promise<void> | void = () => undefined;
  /** The model: the next token after these. */
  next: (tokens: readonly number[]) => number = following;
  stepping = false;
  closed = false;
  #next = 1;

  constructor(
    private readonly pages = 64,
    private readonly context = 512,
  ) {}

  describe(): RunnerInfo {
    return {
      layers: 1,
      heads: 1,
      kvHeads: 1,
      headDim: 16,
      vocab: scriptedVocab,
      context: this.context,
      pages: this.pages,
      pageSize: 16,
      kvType: "f32",
      kvBytes: 0,
      device: "cpu",
      isa: "scripted",
      threads: 1,
      maxDraftTokens: 16,
      runtimeVersion: "0",
    };
  }

  newSequence(): number {
    this.#idle();
    this.sequences.set(this.#next, []);
    return this.#next++;
  }

  release(id: number): void {
    this.#idle();
    this.sequences.delete(id);
  }

  fork(id: number, length: number): number {
    const cells = this.#cells(id).slice(0, length);
    if (cells.length < length || cells.some((cell) => !cell.filled))
      throw pocketError("BAD_ARGUMENT", "Unfilled fork.");
    const child = this.newSequence();
    this.sequences.set(
      child,
      cells.map((cell) => ({ ...cell })),
    );
    return child;
  }

  splice(id: number, splices: readonly CellSplice[]): void {
    this.#idle();
    const cells = [...this.#cells(id)];
    for (const { start, end, count } of [...splices].reverse()) {
      if (start > end || end > cells.length)
        throw pocketError("BAD_ARGUMENT", `Splice ${start}..${end} of ${cells.length}.`);
      cells.splice(
        start,
        end - start,
        ...Array.from({ length: count }, () => ({ token: -1, filled: false })),
      );
    }
    // As the native pool: an edit that opens cells is refused if there is no page for them; a cut never is.
    const opens = splices.some(({ count }) => count > 0);
    const pages = [...this.sequences].reduce(
      (sum, [other, held]) => sum + Math.ceil((other === id ? cells.length : held.length) / 16),
      0,
    );
    if (opens && pages > this.pages) throw pocketError("CACHE_FULL", 0, 16, cells.length);
    this.sequences.set(id, cells);
  }

  adopt(id: number, from: number, start: number, end: number): void {
    this.#idle();
    const cells = this.#cells(from).slice(start, end);
    this.#cells(id).push(...cells.map((cell) => ({ ...cell })));
  }

  /** Files are lists of tokens; a save waits for `fileGate`. */
  readonly fileTokens = new Map<string, readonly number[]>();
  fileGate: Promise<void> = Promise.resolve();

  async save(id: number, file: string): Promise<void> {
    const cells = this.#cells(id);
    const open = cells.findIndex((cell) => !cell.filled);
    const filled = (open < 0 ? cells : cells.slice(0, open)).map((cell) => ({ ...cell }));
    const pin = -this.#next++;
    this.sequences.set(pin, filled);
    await this.fileGate;
    this.sequences.delete(pin);
    this.fileTokens.set(
      file,
      filled.map(({ token }) => token),
    );
  }

  async load(file: string): Promise<number> {
    const tokens = this.fileTokens.get(file);
    if (!tokens) throw pocketError("KV_FILE_REFUSED", file, "it does not exist");
    const id = this.#next++;
    this.sequences.set(
      id,
      tokens.map((token) => ({ token, filled: true })),
    );
    return id;
  }

  async step(entries: readonly StepEntry[]): Promise<StepResult> {
    this.#idle();
    this.stepping = true;
    this.log.push([...entries]);
    try {
      await new Promise((resolve) => setImmediate(resolve));
      await this.before(this.log.length);
      return { outcomes: entries.map((entry) => this.#compute(entry)), ms: 0 };
    } finally {
      this.stepping = false;
    }
  }

  sequence(id: number): SequenceInfo {
    const cells = this.#cells(id);
    return {
      length: cells.length,
      gapTokens: cells.filter((cell) => !cell.filled).length,
      exactLength: cells.length,
      deltas: 1,
    };
  }

  profile(): [] {
    return [];
  }

  stats(): RunnerStats {
    const held = [...this.sequences.values()];
    const cells = held.reduce((sum, own) => sum + own.length, 0);
    const pagesUsed = held.reduce((sum, own) => sum + Math.ceil(own.length / 16), 0);
    return {
      pagesFree: this.pages - pagesUsed,
      pagesUsed,
      pages: this.pages,
      sequences: this.sequences.size,
      cells,
      gapTokens: 0,
      steps: this.log.length,
      tokensComputed: this.log.flat().reduce((sum, entry) => sum + entry.tokens.length, 0),
    };
  }

  check(): void {}

  inspect(id: number): Cells {
    const cells = this.#cells(id);
    return {
      slots: Int32Array.from(cells, (_, index) => index),
      births: Int32Array.from(cells, (_, index) => index),
      tokens: Int32Array.from(cells, (cell) => cell.token),
      filled: Uint8Array.from(cells, (cell) => Number(cell.filled)),
    };
  }

  async close(): Promise<void> {
    this.#idle();
    this.closed = true;
  }

  #compute(entry: StepEntry): StepOutcome {
    const cells = this.#cells(entry.sequence);
    for (const token of entry.tokens) {
      const cell = cells.find((candidate) => !candidate.filled);
      if (!cell) throw pocketError("BAD_ARGUMENT", "More tokens than gap cells.");
      cell.token = token;
      cell.filled = true;
    }
    const open = cells.some((cell) => !cell.filled);
    if (entry.sample && open) throw pocketError("BAD_ARGUMENT", "Sampled while a gap is open.");
    const none = {
      targetLogprobs: new Float32Array(0),
      targetTopTokens: new Int32Array(0),
      targetTopLogprobs: new Float32Array(0),
    };
    if (!entry.sample) return { ...sampledToken(-1), ...none };
    const sampled = () =>
      allowedFrom(this.next(cells.map((cell) => cell.token)), entry.sample!.mask, scriptedVocab);
    if (!entry.draftTokens) return { ...sampledToken(sampled()), ...none };
    const draft = entry.draftTokens.slice(0, this.#freeCells(cells));
    const accepted: SampledToken[] = [];
    for (const token of draft) {
      if (sampled() !== token) break;
      accepted.push(sampledToken(token));
      cells.push({ token, filled: true });
    }
    return { ...sampledToken(sampled()), ...none, accepted, drafted: draft.length };
  }

  /** Number of cells that one sequence may grow by. */
  #freeCells(cells: readonly Cell[]): number {
    const { pagesFree } = this.stats();
    const rest = Math.ceil(cells.length / 16) * 16 - cells.length;
    return Math.min(rest + 16 * pagesFree, this.context - cells.length);
  }

  #cells(id: number): Cell[] {
    const cells = this.sequences.get(id);
    if (!cells) throw pocketError("BAD_ARGUMENT", `There is no sequence ${id}.`);
    return cells;
  }

  #idle(): void {
    if (this.stepping) throw pocketError("ENGINE_BUSY", "wait");
  }
}
