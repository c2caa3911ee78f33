// The values used last, up to a total weight: the encodings of texts that come again with every request, and
// the ids of answers given here. It forgets the least recently used first. It knows neither what it holds nor
// how heavy that is: the caller says so.

interface Entry<V> {
  readonly value: V;
  readonly weight: number;
}

export class Lru<V> {
  readonly #entries = new Map<string, Entry<V>>();
  #weight = 0;

  /** `capacity` bounds the sum of the weights; a value heavier than that is not kept at all. */
  constructor(
    private readonly capacity: number,
    private readonly countMax: number = Number.POSITIVE_INFINITY,
  ) {}

  get size(): number {
    return this.#entries.size;
  }

  get weight(): number {
    return this.#weight;
  }

  get(key: string): V | undefined {
    const entry = this.#entries.get(key);
    if (!entry) return undefined;
    // A Map walks in order of insertion, so putting the entry back makes it the youngest.
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    return entry.value;
  }

  set(key: string, value: V, weight: number): void {
    this.#drop(key);
    if (weight > this.capacity) return;
    this.#entries.set(key, { value, weight });
    this.#weight += weight;
    for (const oldest of this.#entries.keys()) {
      if (this.#weight <= this.capacity && this.#entries.size <= this.countMax) break;
      this.#drop(oldest);
    }
  }

  #drop(key: string): void {
    const entry = this.#entries.get(key);
    if (!entry) return;
    this.#entries.delete(key);
    this.#weight -= entry.weight;
  }
}
