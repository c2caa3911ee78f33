// Constrained decoding: token masks that keep an answer in a grammar. A grammar is compiled from a plan, checked in a
// worker first (grammar-check.ts), and cached for the next request with the same plan.
import { alphabetCharacter } from "./byte-alphabet.ts";
import { compileLimitMs, GrammarCheck, type Vocabulary } from "./grammar-check.ts";
import type { Tokenizer } from "./tokenizer.ts";
import {
  type CompiledGrammar,
  compilePlan,
  type GrammarCompiler,
  type GrammarPlan,
  type IntVector,
  loadXgrammar,
} from "./xgrammar.ts";

/** Limits the next token of one answer; has one answer's state. */
export interface TokenConstraint {
  /** The answer has ended: a stop token was accepted, or a token that is not allowed. */
  readonly terminated: boolean;
  /** Records a sampled token. False: it is not allowed, and the constraint has terminated. */
  accept(id: number): boolean;
  /** Bit `id % 32` of word `id / 32` is 1 where the token may come next. Read-only. */
  mask(): Int32Array;
  /** Idempotent; call nothing else afterwards. */
  dispose(): void;
}

/** Number of cached grammars; each has a few megabytes of masks. */
const maxCached = 32;
/** How long a refusal is cached, in milliseconds. */
const refusalMs = 60_000;

type Cached = { readonly compiled: CompiledGrammar } | { readonly refusal: string };

export class Grammars {
  readonly #cache = new Map<string, Promise<Cached>>();
  #made: { readonly vocabulary: Vocabulary; readonly check: GrammarCheck } | undefined;
  #compiler: Promise<GrammarCompiler> | undefined;

  constructor(
    private readonly tokenizer: Tokenizer,
    private readonly stopTokens: ReadonlySet<number>,
    /** CPU milliseconds after which the compilation of a grammar is ended. */
    private readonly limitMs = compileLimitMs,
  ) {}

  /** A constraint at the start of the plan's grammar, or the reason of a refusal, in words that follow a colon. */
  async start(plan: GrammarPlan): Promise<TokenConstraint | string> {
    const cached = await this.#compiled(plan);
    if ("refusal" in cached) return cached.refusal;
    const { GrammarMatcher } = loadXgrammar();
    const { size } = this.#base.vocabulary;
    return new Matcher(await GrammarMatcher.createGrammarMatcher(cached.compiled), size);
  }

  /** Ends the worker. Started constraints stay valid. */
  close(): void {
    this.#made?.check.close();
  }

  /** Made for the first constrained answer: most servers have none. */
  get #base(): { readonly vocabulary: Vocabulary; readonly check: GrammarCheck } {
    if (!this.#made) {
      const vocabulary = vocabularyOf(this.tokenizer, this.stopTokens);
      this.#made = { vocabulary, check: new GrammarCheck(vocabulary, this.limitMs) };
    }
    return this.#made;
  }

  #compiled(plan: GrammarPlan): Promise<Cached> {
    const key = JSON.stringify(plan);
    const known = this.#cache.get(key);
    this.#cache.delete(key);
    const compiled = known ?? this.#compile(plan, key);
    this.#cache.set(key, compiled);
    const oldest = this.#cache.keys().next().value;
    if (this.#cache.size > maxCached && oldest !== undefined) {
      void this.#cache.get(oldest)!.then((cached) => "compiled" in cached && cached.compiled.dispose());
      this.#cache.delete(oldest);
    }
    return compiled;
  }

  async #compile(plan: GrammarPlan, key: string): Promise<Cached> {
    const refusal = await this.#base.check.refusal(plan);
    if (refusal !== undefined) {
      // A plan that took too long may be compiled in time later.
      setTimeout(() => this.#cache.delete(key), refusalMs).unref();
      return { refusal };
    }
    this.#compiler ??= this.#makeCompiler();
    return { compiled: await compilePlan(loadXgrammar(), await this.#compiler, plan) };
  }

  async #makeCompiler(): Promise<GrammarCompiler> {
    const { TokenizerInfo, GrammarCompiler } = loadXgrammar();
    const { words, size, stopTokens } = this.#base.vocabulary;
    const info = await TokenizerInfo.createTokenizerInfo([...words], "byte_level", false, size, [
      ...stopTokens,
    ]);
    return GrammarCompiler.createGrammarCompiler(info, false);
  }
}

/** The methods of the package's matcher that are used; its own method for a mask is asynchronous. */
interface Native {
  acceptToken(id: number): boolean;
  isTerminated(): boolean;
  dispose(): void;
}

/** The private field of the package's matcher that computes masks synchronously. */
interface Handle {
  GetNextTokenBitmask(size: number): IntVector;
}

class Matcher implements TokenConstraint {
  readonly #handle: Handle;
  #failed = false;
  #disposed = false;

  constructor(
    private readonly native: Native,
    private readonly size: number,
  ) {
    this.#handle = (native as unknown as { readonly handle: Handle }).handle;
  }

  get terminated(): boolean {
    return this.#failed || this.native.isTerminated();
  }

  accept(id: number): boolean {
    if (this.terminated) return false;
    try {
      this.#failed = !this.native.acceptToken(id);
    } catch {
      this.#failed = true;
    }
    return !this.#failed;
  }

  /** All zeros if the library fails: that ends this answer, and no other one of its batch. */
  mask(): Int32Array {
    try {
      const vector = this.#handle.GetNextTokenBitmask(this.size);
      const mask = loadXgrammar().binding().vecIntToView(vector).slice();
      vector.delete();
      return mask;
    } catch {
      return new Int32Array(this.size / 32);
    }
  }

  dispose(): void {
    if (!this.#disposed) this.native.dispose();
    this.#disposed = true;
  }
}

/** Never allowed: special tokens, unused ids, and the padding to whole words of a mask. */
function vocabularyOf(tokenizer: Tokenizer, stopTokens: ReadonlySet<number>): Vocabulary {
  const never = new Set(tokenizer.addedTokens.filter(({ special }) => special).map(({ id }) => id));
  const size = Math.ceil(tokenizer.size / 32) * 32;
  const words = Array.from({ length: size }, (_, id) =>
    never.has(id) ? "" : Array.from(tokenizer.bytesOf(id), alphabetCharacter).join(""),
  );
  return { words, size, stopTokens: [...stopTokens] };
}
