// Where the last tokens of a text stood before: a chain of earlier positions per hash of two neighbours, as in LZ77
// compressors. It answers with what followed then. Grows by tokens, never shrinks; memory is eight bytes a token and
// a table of fixed size. It knows no model and does not judge what it finds.

/** What may come next: `tokens` followed an earlier place whose last `match` tokens are those at the end now. */
export interface NgramMatch {
  readonly tokens: Int32Array;
  readonly match: number;
}

const buckets = 1 << 14;
/** Shorter agreement says nothing; longer says no more than this. */
export const minMatch = 2;
export const maxMatch = 8;
/** Earlier places looked at per question: a text of one token over and over has as many as tokens. */
const maxCandidates = 48;

export class NgramIndex {
  #tokens = new Int32Array(1024);
  /** Per position the one before it in its chain, or -1. */
  #earlier = new Int32Array(1024);
  readonly #latest = new Int32Array(buckets).fill(-1);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  push(token: number): void {
    if (this.#length === this.#tokens.length) {
      this.#tokens = grown(this.#tokens);
      this.#earlier = grown(this.#earlier);
    }
    const place = this.#length++;
    this.#tokens[place] = token;
    if (place === 0) return;
    // The pair that ends in front of this token is in its chain only now that something follows it.
    if (place >= minMatch) this.#enter(place - 1);
  }

  /** At most `count` tokens. The longest match wins, of equals the latest. Undefined: the end is new. */
  find(count: number): NgramMatch | undefined {
    const end = this.#length;
    if (end < minMatch + 1 || count < 1) return undefined;
    let best = 0;
    let from = -1;
    let place = this.#latest[this.#bucket(end - 1)]!;
    for (let looked = 0; place >= 0 && looked < maxCandidates && best < maxMatch; looked++) {
      const match = this.#matchAt(place);
      if (match > best) {
        best = match;
        from = place + 1;
      }
      place = this.#earlier[place]!;
    }
    if (best < minMatch) return undefined;
    return { tokens: this.#following(from, count), match: best };
  }

  /** From a place near the end the text that follows repeats: what it would read if it went on as it came. */
  #following(from: number, count: number): Int32Array {
    const period = this.#length - from;
    return Int32Array.from({ length: count }, (_, index) => this.#tokens[from + (index % period)]!);
  }

  #enter(place: number): void {
    const bucket = this.#bucket(place);
    this.#earlier[place] = this.#latest[bucket]!;
    this.#latest[bucket] = place;
  }

  #bucket(place: number): number {
    const pair =
      Math.imul(this.#tokens[place - 1]!, 0x9e3779b1) ^ Math.imul(this.#tokens[place]!, 0x85ebca6b);
    return (pair ^ (pair >>> 15)) & (buckets - 1);
  }

  /** Tokens that end at `place` and agree with the end, at most matchMost. */
  #matchAt(place: number): number {
    let match = 0;
    while (match < maxMatch && match <= place) {
      if (this.#tokens[place - match] !== this.#tokens[this.#length - 1 - match]) break;
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
