// Index of n-grams in a growing text: per hash of two neighbouring tokens a chain of earlier positions, as in LZ77
// compressors. It answers with the tokens that followed the latest longest match. It never shrinks; memory is eight
// bytes a token plus a table of fixed size.

/** `tokens` followed an earlier position whose last `match` tokens equal the last `match` tokens of the text. */
export interface NgramMatch {
  readonly tokens: Int32Array;
  readonly match: number;
}

const buckets = 1 << 14;
/** Shorter matches predict nothing; longer ones predict no better than maxMatch. */
export const minMatch = 2;
export const maxMatch = 8;
/** Earlier positions tested per query: a text of one repeated token has as many as it has tokens. */
const maxCandidates = 48;

export class NgramIndex {
  #tokens = new Int32Array(1024);
  /** Per position the previous position in its chain, or -1. */
  #earlier = new Int32Array(1024);
  readonly #latest = new Int32Array(buckets).fill(-1);
  #length = 0;

  push(token: number): void {
    if (this.#length === this.#tokens.length) {
      this.#tokens = grown(this.#tokens);
      this.#earlier = grown(this.#earlier);
    }
    const position = this.#length++;
    this.#tokens[position] = token;
    // The bigram that ends in front of this token enters its chain only now, when a token follows it.
    if (position >= minMatch) this.#enter(position - 1);
  }

  /** At most `count` tokens after the longest match, the latest of equal ones. Undefined: no match. */
  find(count: number): NgramMatch | undefined {
    const end = this.#length;
    if (end < minMatch + 1 || count < 1) return undefined;
    let best = 0;
    let from = -1;
    let position = this.#latest[this.#bucket(end - 1)]!;
    for (let tested = 0; position >= 0 && tested < maxCandidates && best < maxMatch; tested++) {
      const match = this.#matchAt(position);
      if (match > best) {
        best = match;
        from = position + 1;
      }
      position = this.#earlier[position]!;
    }
    if (best < minMatch) return undefined;
    return { tokens: this.#following(from, count), match: best };
  }

  /** Where fewer than `count` tokens follow `from`, they are repeated: the text has this period if it continues. */
  #following(from: number, count: number): Int32Array {
    const period = this.#length - from;
    return Int32Array.from({ length: count }, (_, index) => this.#tokens[from + (index % period)]!);
  }

  #enter(position: number): void {
    const bucket = this.#bucket(position);
    this.#earlier[position] = this.#latest[bucket]!;
    this.#latest[bucket] = position;
  }

  #bucket(position: number): number {
    const bigram =
      Math.imul(this.#tokens[position - 1]!, 0x9e3779b1) ^ Math.imul(this.#tokens[position]!, 0x85ebca6b);
    return (bigram ^ (bigram >>> 15)) & (buckets - 1);
  }

  /** Number of tokens ending at `position` that equal those at the end of the text, at most maxMatch. */
  #matchAt(position: number): number {
    let match = 0;
    while (match < maxMatch && match <= position) {
      if (this.#tokens[position - match] !== this.#tokens[this.#length - 1 - match]) break;
      match++;
    }
    return match;
  }
}

function grown(values: Int32Array<ArrayBuffer>): Int32Array<ArrayBuffer> {
  const larger = new Int32Array(values.length * 2);
  larger.set(values);
  return larger;
}
