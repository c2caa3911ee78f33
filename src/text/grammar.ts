// Constrained decoding: which tokens may come next so that the answer ends up in a grammar. A grammar is made of a
// plan, proven in a worker first (grammar-check.ts), and kept for the next request with the same one. It gives masks over
// the vocabulary and is told what was sampled; it never sees a logit.
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

/** How far one answer has come in its grammar. */
export interface TokenConstraint {
  /** The answer is complete: a stop token was accepted, or one that the grammar does not know. */
  readonly terminated: boolean;
  /** Whether the token fits; one that does not ends the grammar. */
  accept(id: number): boolean;
  /** Bit `id % 32` of word `id / 32` is 1 where the token may come next. A copy. */
  mask(): Int32Array;
  /** Idempotent; nothing else may be called afterwards. */
  dispose(): void;
}

/** Grammars kept for the next request; a vocabulary's masks take a few megabytes each. */
const keptMax = 32;
/** How long a refusal is repeated without another try, in milliseconds. */
const refusalMs = 60_000;

type Kept = { readonly compiled: CompiledGrammar } | { readonly refusal: string };

export class Grammars {
  readonly #kept = new Map<string, Promise<Kept>>();
  #made: { readonly vocabulary: Vocabulary; readonly proof: GrammarCheck } | undefined;
  #compiler: Promise<GrammarCompiler> | undefined;

  constructor(
    private readonly tokenizer: Tokenizer,
    private readonly stopTokens: ReadonlySet<number>,
    /** Milliseconds after which a grammar is given up. */
    private readonly limitMs = compileLimitMs,
  ) {}

  /** A fresh start in the plan's grammar, or why there is none, in words that follow a colon. */
  async start(plan: GrammarPlan): Promise<TokenConstraint | string> {
    const kept = await this.#compiled(plan);
    if ("refusal" in kept) return kept.refusal;
    const { GrammarMatcher } = loadXgrammar();
    const { size } = this.#base.vocabulary;
    return new Matcher(await GrammarMatcher.createGrammarMatcher(kept.compiled), size);
  }

  /** Ends the worker. Grammars that were started go on. */
  close(): void {
    this.#made?.proof.close();
  }

  /** Most servers never constrain an answer, so the vocabulary is spelled out for the first that does. */
  get #base(): { readonly vocabulary: Vocabulary; readonly proof: GrammarCheck } {
    if (!this.#made) {
      const vocabulary = vocabularyOf(this.tokenizer, this.stopTokens);
      this.#made = { vocabulary, proof: new GrammarCheck(vocabulary, this.limitMs) };
    }
    return this.#made;
  }

  #compiled(plan: GrammarPlan): Promise<Kept> {
    const key = JSON.stringify(plan);
    const known = this.#kept.get(key);
    this.#kept.delete(key);
    const compiled = known ?? this.#compile(plan, key);
    this.#kept.set(key, compiled);
    const oldest = this.#kept.keys().next().value;
    if (this.#kept.size > keptMax && oldest !== undefined) {
      void this.#kept.get(oldest)!.then((kept) => "compiled" in kept && kept.compiled.dispose());
      this.#kept.delete(oldest);
    }
    return compiled;
  }

  async #compile(plan: GrammarPlan, key: string): Promise<Kept> {
    const refusal = await this.#base.proof.objection(plan);
    if (refusal !== undefined) {
      // Some are for want of time, which another day may have.
      setTimeout(() => this.#kept.delete(key), refusalMs).unref();
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

/** Of the package's matcher, what is used here; its own way to a mask takes a turn of the event loop. */
interface Native {
  acceptToken(id: number): boolean;
  isTerminated(): boolean;
  dispose(): void;
}

/** What the package's matcher wraps, a field that it declares private. */
interface Handle {
  GetNextTokenBitmask(size: number): IntVector;
}

class Matcher implements TokenConstraint {
  readonly #handle: Handle;
  #strayed = false;
  #disposed = false;

  constructor(
    private readonly native: Native,
    private readonly size: number,
  ) {
    this.#handle = (native as unknown as { readonly handle: Handle }).handle;
  }

  get terminated(): boolean {
    return this.#strayed || this.native.isTerminated();
  }

  accept(id: number): boolean {
    if (this.terminated) return false;
    try {
      this.#strayed = !this.native.acceptToken(id);
    } catch {
      this.#strayed = true;
    }
    return !this.#strayed;
  }

  /** Nothing is allowed once the library has failed: that ends this answer, and no other of its batch. */
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

/** Special tokens, ids that stand for nothing and the padding to whole words of a mask are never allowed. */
function vocabularyOf(tokenizer: Tokenizer, stopTokens: ReadonlySet<number>): Vocabulary {
  const never = new Set(tokenizer.addedTokens.filter(({ special }) => special).map(({ id }) => id));
  const size = Math.ceil(tokenizer.size / 32) * 32;
  const words = Array.from({ length: size }, (_, id) =>
    never.has(id) ? "" : Array.from(tokenizer.bytesOf(id), alphabetCharacter).join(""),
  );
  return { words, size, stopTokens: [...stopTokens] };
}
