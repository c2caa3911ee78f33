// Runs before every test file: property tests draw from one seed, so that a change is judged by the same cases on
// every machine and a failure can be had again. POCKET_SEED takes another; `scripts/fuzz` goes on with new ones.
import fc from "fast-check";

const seed = Number(process.env.POCKET_SEED ?? 20_261_130);
if (!Number.isSafeInteger(seed))
  throw new Error(`POCKET_SEED is ${process.env.POCKET_SEED}; it takes an integer.`);
fc.configureGlobal({ seed });
