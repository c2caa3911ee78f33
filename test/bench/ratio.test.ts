import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { enoughRounds, pairedRatio, verdictOn } from "../../bench/regress/ratio.ts";
import { isRate, measuredIn } from "../../bench/regress/rows.ts";

const times = fc.array(fc.double({ min: 1, max: 100, noNaN: true }), { minLength: 1, maxLength: 12 });

describe("the ratio of two sides", () => {
  test("of equal measurements is 1 with an interval of nothing", () => {
    fc.assert(
      fc.property(times, (values) => {
        expect(pairedRatio(values, values)).toEqual({ ratio: 1, low: 1, high: 1, rounds: values.length });
      }),
      { numRuns: 30 },
    );
  });

  test("is inverted when the sides are exchanged, and its interval stays within the measured ratios", () => {
    fc.assert(
      fc.property(times, times, (one, other) => {
        const rounds = Math.min(one.length, other.length);
        const [a, b] = [one.slice(0, rounds), other.slice(0, rounds)];
        const [there, back] = [pairedRatio(a, b), pairedRatio(b, a)];
        expect(there.ratio * back.ratio).toBeCloseTo(1, 9);
        expect(there.low).toBeLessThanOrEqual(there.high);
        expect(there.low).toBeGreaterThanOrEqual(Math.min(...b) / Math.max(...a) - 1e-9);
        expect(there.high).toBeLessThanOrEqual(Math.max(...b) / Math.min(...a) + 1e-9);
      }),
      { numRuns: 30 },
    );
  });

  test("of sides that swing by 10 % around one middle is within the noise", () => {
    const ratio = pairedRatio([100, 110, 90, 105, 95, 100], [95, 100, 110, 90, 105, 100]);
    expect(verdictOn(ratio, true)).toBe("within the noise");
  });

  test("of a tenth more is a difference when every round shows it", () => {
    const first = [100, 120, 90, 105, 95, 101];
    const ratio = pairedRatio(
      first,
      first.map((value) => value * 1.1),
    );
    expect(ratio.ratio).toBeCloseTo(1.1, 9);
    expect(verdictOn(ratio, true)).toBe("faster");
    expect(verdictOn(ratio, false)).toBe("slower");
  });

  test("that never leaves two per cent is no difference, and too few rounds are no evidence", () => {
    const first = [100, 101, 99, 100, 102];
    const steady = first.map((value) => value * 1.005);
    expect(verdictOn(pairedRatio(first, steady), true)).toBe("no difference");
    const few = first.slice(0, enoughRounds - 1);
    expect(
      verdictOn(
        pairedRatio(
          few,
          few.map((value) => value * 2),
        ),
        true,
      ),
    ).toBe("too few rounds");
  });

  test("is read the right way round: rates want more, times less", () => {
    expect(["tokens/s", "GB/s", "x | kvGBs/s"].map(isRate)).toEqual([true, true, true]);
    expect(["ms", "first token ms", "seconds"].map(isRate)).toEqual([false, false, false]);
  });
});

test("rows are known by their texts, and only times and rates are compared", () => {
  const folder = mkdtempSync(join(tmpdir(), "pocket-rows-"));
  const lines = [
    { at: "one day", model: "tiny", row: "tg32", "tokens/s": 10, min: 9, machine: { cpu: "x" } },
    { at: "another", model: "tiny", row: "tg32", "tokens/s": 12, min: 9, machine: { cpu: "x" } },
    { model: "tiny", row: "compact", "first token ms": 7, computed: 200 },
  ];
  try {
    writeFileSync(join(folder, "engine.jsonl"), lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
    writeFileSync(join(folder, "notes.txt"), "no row");
    expect([...measuredIn(folder)]).toEqual([
      ["tiny · tg32 | tokens/s", 12],
      ["tiny · compact | first token ms", 7],
    ]);
    expect(measuredIn(join(folder, "none")).size).toBe(0);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
