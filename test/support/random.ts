// Reproducible random numbers for tests: the same for the same seed on every machine. Not cryptographic.

/** The next number in [0, 1). */
export type Random = () => number;

/** Mulberry32: a 32-bit counter through a mixing function; 24 bits of each result are used. */
export function seeded(seed: number): Random {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 8) / 2 ** 24;
  };
}
