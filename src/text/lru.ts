// LRU cache with a limit on the total weight of its values, which the caller states, and on their number.

interface Entry<V> {
  readonly value: V;
  readonly weight: number;
}

export class Lru<V> {
  readonly #entries = new Map<string, Entry<V>>();
  #weight = 0;

  /** `capacity` limits the sum of the weights; a value heavier than that is not stored. */
  constructor(
    private readonly capacity: number,
    private readonly maxEntries: number = Number.POSITIVE_INFINITY,
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
    // A Map iterates in insertion order, so inserting the entry again makes it the youngest.
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
      if (this.#weight <= this.capacity && this.#entries.size <= this.maxEntries) break;
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
