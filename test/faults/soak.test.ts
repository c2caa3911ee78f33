// The soak of `npm run bench -- soak` for a minute, and two soaks over a faulty runner that must fail.
import { expect, test } from "vitest";
import { soak } from "../../bench/soak/soak.ts";
import type { Runner } from "../../src/engine/addon.ts";

const size = { clients: 32, cacheTokens: 4096, replays: 60 };

test("thirty-two misbehaving clients, a tiny pool and a faulty runner cause no leak and no wrong answer", async () => {
  const outcome = await soak({ ...size, seconds: 60, seed: 20_261_130 });
  expect(outcome.wrongs).toEqual([]);
  const { counts, faults, bills, serverCounts, replayed } = outcome;
  // The soak did what it is for.
  expect(counts.answered).toBeGreaterThan(50);
  expect(counts.left).toBeGreaterThan(4);
  expect(counts.deletes).toBeGreaterThan(4);
  expect(faults.steps).toBeGreaterThan(0);
  expect(faults.splices).toBeGreaterThan(0);
  expect(bills.relocated).toBeGreaterThan(0);
  expect(serverCounts.evictions).toBeGreaterThan(4);
  expect(serverCounts.diskHits).toBeGreaterThan(1);
  // How much was repaired is told and not asked for: thirty-two clients may leave no idle moment. See session/idle.
  expect(replayed).toBe(60);
}, 180_000);

/** The runner with one call of its own. */
function broken(runner: Runner, call: Partial<Runner>): Runner {
  return new Proxy(runner, {
    get(target, key) {
      const value = Reflect.get(call, key) ?? (Reflect.get(target, key) as unknown);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

test("the soak detects a runner that skips one release", async () => {
  let releases = 0;
  const sabotage = (runner: Runner) =>
    broken(runner, {
      release(id) {
        if (++releases !== 3) runner.release(id);
      },
    });
  const { wrongs } = await soak({ ...size, clients: 8, replays: 0, seconds: 3, seed: 1, sabotage });
  expect(wrongs).toContainEqual(expect.stringMatching(/^after letting go: .*"sequences":[1-9]/));
}, 60_000);

test("the soak detects a runner that sometimes samples another token", async () => {
  let steps = 0;
  const sabotage = (runner: Runner) =>
    broken(runner, {
      async step(entries) {
        const result = await runner.step(entries);
        if (++steps % 5 !== 0) return result;
        const outcomes = result.outcomes.map((one) => ({ ...one, token: one.token < 0 ? -1 : 65 }));
        return { ...result, outcomes };
      },
    });
  const { wrongs } = await soak({ ...size, clients: 8, replays: 30, seconds: 3, seed: 1, sabotage });
  expect(wrongs).toContainEqual(expect.stringMatching(/tokens were answered .* and idle /));
}, 60_000);
