import { describe, expect, it } from "vitest";
import { planEdit } from "../../src/session/planner/edit-planner.ts";
import { contentAfter } from "../../src/session/residency/reconcile.ts";
import { Session } from "../../src/session/residency/session.ts";
import { type Span, spanOf, tokensOf } from "../../src/text/span.ts";
import { FakeEngine } from "../support/fake-engine.ts";

const span = (role: Span["role"], name: number, length: number) =>
  spanOf(
    role,
    Int32Array.from({ length }, (_, index) => 1000 * name + index),
  );
const old = [span("system", 1, 20), span("user", 2, 40), span("assistant", 3, 30)];
const wanted = [old[0]!, span("user", 4, 10), old[2]!, span("user", 5, 8)];
const plan = planEdit(old, wanted, { reuse: "suffix", exactLength: 90 });
const before = { spans: old, relocated: [] };

describe("the content of a session after a job", () => {
  it("is the old version, the new one with its answer, or the filled part of the new one", () => {
    const ended = { before, wanted, plan, generated: [7, 8], refused: false };
    expect(contentAfter(ended, tokensOf(old))).toBe(before);
    const answered = Int32Array.of(...tokensOf(wanted), 7);
    expect(tokensOf(contentAfter(ended, answered)!.spans)).toEqual(answered);
    for (let filled = 0; filled <= 18; filled++) {
      const first = Math.min(filled, 10);
      const parts = [tokensOf(old).slice(0, 20), wanted[1]!.tokens.slice(0, first), old[2]!.tokens];
      const resident = Int32Array.from(
        [...parts, wanted[3]!.tokens.slice(0, filled - first)].flatMap((part) => [...part]),
      );
      const content = contentAfter(ended, resident)!;
      expect(tokensOf(content.spans)).toEqual(resident);
      expect(content.relocated).toEqual([{ start: 20 + first, end: 50 + first }]);
    }
    expect(contentAfter(ended, Int32Array.of(1, 2, 3))).toBeUndefined();
  });

  it("is unknown for a fork that was abandoned before the engine created it", () => {
    const sequence = new FakeEngine(() => 0).create();
    // Like the engine's handle during a step: it has a length but no tokens yet.
    const unmade = Object.create(sequence, { length: { value: 20 }, exactLength: { value: 20 } });
    const session = new Session({ id: "s", named: false, tenant: undefined }, unmade, [old[0]!]);
    session.begin(wanted, planEdit([old[0]!], wanted, { reuse: "suffix", exactLength: 20 }), () => undefined);
    expect(session.end({ generated: [], edited: "no" })).toBe(false);
  });
});
