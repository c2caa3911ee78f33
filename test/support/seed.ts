// Set-up of every test file: property tests use one seed, so that they run the same cases everywhere and a failure can be
// reproduced. POCKET_SEED sets another one; `scripts/fuzz` runs with new ones.
import fc from "fast-check";

const seed = Number(process.env.POCKET_SEED ?? 20_261_130);
if (!Number.isSafeInteger(seed))
  throw new Error(`POCKET_SEED is ${process.env.POCKET_SEED}; it must be an integer.`);
fc.configureGlobal({ seed });
