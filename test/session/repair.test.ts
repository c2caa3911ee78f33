import { describe, expect, it } from "vitest";
import type { Repair } from "../../src/chat/chat.ts";
import { planEdit } from "../../src/session/planner/edit-planner.ts";
import { type Span, spanOf } from "../../src/text/span.ts";

function message(role: Span["role"], name: number, length: number): Span {
  return spanOf(
    role,
    Int32Array.from({ length }, (_, index) => 1000 * name + index),
  );
}

const resident = [
  message("system", 1, 50),
  message("user", 2, 100),
  message("assistant", 3, 60),
  message("tool", 4, 300),
  message("assistant", 5, 40),
  message("user", 6, 30),
];
const wanted = [resident[0]!, message("user", 7, 20), ...resident.slice(2), message("user", 8, 10)];

function shape(repair: Repair) {
  const plan = planEdit(resident, wanted, { reuse: "suffix", exactLength: 580, repair });
  return {
    splices: plan.splices.map(({ start, end, tokens }) => [start, end, tokens.length]),
    cacheUsage: [plan.kept, plan.relocated, plan.computed],
    exactLength: plan.exactLength,
  };
}

describe("repair", () => {
  it("none recomputes no survivor", () => {
    expect(shape("none")).toEqual({
      splices: [
        [50, 150, 20],
        [580, 580, 10],
      ],
      cacheUsage: [50, 430, 30],
      exactLength: 70,
    });
  });

  it("assistant cuts every surviving assistant message and inserts the same tokens", () => {
    // The first message touches the edit, so both are one splice and the exact cells reach to its end.
    expect(shape("assistant")).toEqual({
      splices: [
        [50, 210, 80],
        [510, 550, 40],
        [580, 580, 10],
      ],
      cacheUsage: [50, 330, 130],
      exactLength: 130,
    });
  });

  it("first-assistant stops after one message", () => {
    expect(shape("first-assistant").splices).toEqual([
      [50, 210, 80],
      [580, 580, 10],
    ]);
  });

  it("assistant+256 adds the first 256 survivors", () => {
    expect(shape("assistant+256").splices).toEqual([
      [50, 406, 276],
      [510, 550, 40],
      [580, 580, 10],
    ]);
  });

  it("a count takes that many survivors from the front, a fraction that part of them", () => {
    expect(shape(64).splices).toEqual([
      [50, 214, 84],
      [580, 580, 10],
    ]);
    expect(shape(0.5).splices).toEqual([
      [50, 365, 235],
      [580, 580, 10],
    ]);
    expect(shape(100_000)).toEqual({ splices: [[50, 580, 460]], cacheUsage: [50, 0, 460], exactLength: 510 });
  });

  it("never touches cells in front of the edit", () => {
    const plan = planEdit(resident, [...resident, message("user", 9, 9)], {
      reuse: "suffix",
      exactLength: 580,
      repair: "assistant+256",
    });
    expect(plan).toMatchObject({ kept: 580, computed: 9 });
  });

  it("in front of the edit counts as computed; cells that did not move count as kept", () => {
    const plan = planEdit(resident, [...resident, message("user", 9, 9)], {
      reuse: "suffix",
      exactLength: 100,
      relocated: [{ start: 100, end: 400 }],
      repair: 200,
    });
    expect(plan).toMatchObject({ kept: 380, relocated: 0, computed: 209, cut: 200, dropped: 0 });
    expect(plan.exactLength).toBe(300);
    expect(plan.reason).toBe(
      "All 580 resident tokens stayed; 9 were appended. 200 survivors were recomputed as repair.",
    );
  });
});
