// Background jobs, survivors of an aborted edit, adopted cells, files and counts, on the scripted runner.
import { describe, expect, test } from "vitest";
import type { StepReport } from "../../src/engine/step-stats.ts";
import { append, collect, continuation, job, range, rig } from "./rig.ts";

const repairOf = (start: number, tokens: number[]) =>
  job([{ start, end: start + tokens.length, tokens: Int32Array.from(tokens) }], 0, { background: true });

describe("background work", () => {
  test("is computed while no other job runs, and need not reach the last cell", async () => {
    const { engine, runner } = rig();
    const sequence = engine.create();
    await collect(sequence.run(job([append(sequence, range(0, 60))], 0)));
    await collect(sequence.run(repairOf(20, range(20, 40))));
    expect(Array.from(sequence.tokens())).toEqual(range(0, 60));
    expect(runner.log.at(-1)![0]!.tokens).toEqual(Int32Array.from(range(20, 40)));
  });

  test("waits for all other jobs, and delays them by one step at most", async () => {
    const { engine, runner } = rig();
    const [idle, busy] = [engine.create(), engine.create()];
    await collect(idle.run(job([append(idle, range(0, 60))], 0)));
    const answer = collect(busy.run(job([append(busy, range(0, 90))], 8)));
    const repair = collect(idle.run(repairOf(10, range(10, 30))));
    expect(engine.busy).toBe(1);
    await answer;
    const before = runner.log.slice(2).map((entries) => entries.map(({ sequence }) => sequence));
    expect(before.slice(0, 10)).toEqual(before.slice(0, 10).map(() => [2]));
    await repair;
    expect(runner.log.at(-1)!.map(({ sequence }) => sequence)).toEqual([1]);
    expect(engine.stats()).toMatchObject({ backgroundTokens: 20, promptTokens: 150, decodeTokens: 7 });
  });

  test("delays an answer that arrives during its step by one step", async () => {
    const { engine, runner } = rig();
    const [idle, busy] = [engine.create(), engine.create()];
    await collect(idle.run(job([append(idle, range(0, 60))], 0)));
    const steps = runner.log.length;
    let answer: Promise<number[]> | undefined;
    runner.before = (step) => {
      if (step === steps + 1) answer = collect(busy.run(job([append(busy, [1, 2])], 3)));
    };
    // Larger than a step, which it should not be: the rest waits.
    await collect(idle.run(repairOf(0, range(0, 50))));
    await answer;
    const order = runner.log.slice(steps).map((entries) => entries.map(({ sequence }) => sequence));
    expect(order).toEqual([[1], [2], [2], [2], [1]]);
  });

  test("has changed nothing when it is cancelled before its first step", async () => {
    const { engine, runner } = rig();
    const [idle, busy] = [engine.create(), engine.create()];
    await collect(idle.run(job([append(idle, range(0, 60))], 0)));
    const answer = collect(busy.run(job([append(busy, range(0, 90))], 8)));
    const controller = new AbortController();
    const repair = collect(idle.run({ ...repairOf(10, range(10, 30)), signal: controller.signal }));
    expect(idle.length).toBe(60);
    const fork = idle.fork(60);
    controller.abort();
    await expect(repair).rejects.toMatchObject({ code: "CANCELLED" });
    expect(Array.from(idle.tokens())).toEqual(range(0, 60));
    await answer;
    expect(Array.from(fork.tokens())).toEqual(range(0, 60));
    expect(runner.log.flat().filter(({ sequence }) => sequence === 1)).toHaveLength(2);
  });
});

describe("an edit cut short", () => {
  const aborted = async (keepsSurvivors: boolean) => {
    const { engine, runner } = rig();
    const sequence = engine.create();
    await collect(sequence.run(job([append(sequence, range(0, 60))], 0)));
    const controller = new AbortController();
    const steps = runner.log.length;
    runner.before = (step) => {
      if (step === steps + 2) controller.abort();
    };
    const splices = [{ start: 10, end: 20, tokens: Int32Array.from(range(500, 600)) }, append(sequence, [7])];
    await expect(
      collect(sequence.run(job(splices, 5, { signal: controller.signal, keepsSurvivors }))),
    ).rejects.toMatchObject({ code: "CANCELLED" });
    return { runner, sequence };
  };

  test("loses everything from its first open gap on", async () => {
    const { sequence } = await aborted(false);
    expect(Array.from(sequence.tokens())).toEqual([...range(0, 10), ...range(500, 564)]);
    expect(sequence.length).toBe(74);
  });

  test("loses the open cells only when its survivors are wanted", async () => {
    const { sequence, runner } = await aborted(true);
    expect(Array.from(sequence.tokens())).toEqual([...range(0, 10), ...range(500, 564), ...range(20, 60)]);
    expect(sequence.length).toBe(114);
    expect(runner.sequence(1)).toMatchObject({ length: 114, gapTokens: 0 });
    const whole = [...range(0, 10), ...range(500, 564), ...range(20, 60), 8];
    expect(await collect(sequence.run(job([append(sequence, [8])], 3)))).toEqual(continuation(whole, 3));
  });
});

describe("cells that need no computing", () => {
  test("are adopted from another sequence, also while that one runs", async () => {
    const { engine } = rig();
    const [archive, sequence] = [engine.create(), engine.create()];
    await collect(archive.run(job([append(archive, range(0, 40))], 0)));
    await collect(sequence.run(job([append(sequence, range(100, 110))], 0)));
    const running = collect(archive.run(job([append(archive, [1])], 5)));
    sequence.adopt(archive, 8, 20);
    expect(sequence.length).toBe(22);
    expect(() => sequence.adopt(archive, 30, 41)).toThrow(expect.objectContaining({ code: "BAD_ARGUMENT" }));
    await running;
    expect(Array.from(sequence.tokens())).toEqual([...range(100, 110), ...range(8, 20)]);
    const whole = [...range(100, 110), ...range(8, 20), 3];
    expect(await collect(sequence.run(job([append(sequence, [3])], 4)))).toEqual(continuation(whole, 4));
  });

  test("are refused where they do not fit the context or a job runs", async () => {
    const { engine } = rig(64);
    const sequence = engine.create();
    await collect(sequence.run(job([append(sequence, range(0, 300))], 0)));
    expect(() => sequence.adopt(sequence, 0, 300)).toThrow(
      expect.objectContaining({ code: "CONTEXT_LENGTH_EXCEEDED" }),
    );
    const running = collect(sequence.run(job([append(sequence, [1])], 2)));
    expect(() => sequence.adopt(sequence, 0, 3)).toThrow(expect.objectContaining({ code: "BAD_ARGUMENT" }));
    await running;
  });

  test("are saved as they are at the call, though the sequence is released at once", async () => {
    const { engine, runner } = rig();
    const [sequence, other] = [engine.create(), engine.create()];
    await collect(sequence.run(job([append(sequence, range(0, 40))], 0)));
    const running = collect(other.run(job([append(other, range(0, 90))], 3)));
    const saved = sequence.save("a.kv");
    sequence.release();
    await Promise.all([running, saved]);
    const back = await engine.load("a.kv");
    expect(Array.from(back.tokens())).toEqual(range(0, 40));
    expect(engine.stats()).toMatchObject({ saves: 1, loads: 1 });
    await expect(engine.load("b.kv")).rejects.toMatchObject({ code: "KV_FILE_REFUSED" });
    await expect(sequence.save("a.kv")).rejects.toMatchObject({ code: "BAD_ARGUMENT" });
    back.release();
    other.release();
    expect(runner.stats().pagesUsed).toBe(0);
  });

  test("are waited for when the engine closes while they are written", async () => {
    const { engine, runner } = rig();
    const sequence = engine.create();
    await collect(sequence.run(job([append(sequence, range(0, 40))], 0)));
    let open = () => {};
    runner.fileGate = new Promise((resolve) => {
      open = resolve;
    });
    const saved = sequence.save("a.kv");
    const closed = engine.close();
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect(runner.closed).toBe(false);
    open();
    await Promise.all([saved, closed]);
    expect(runner.closed).toBe(true);
  });
});

describe("what the engine counts", () => {
  test("is one report per step, by kind, and adds up to what the runner computed", async () => {
    const reports: StepReport[] = [];
    const { engine, runner } = rig(64, 32, { onStep: (report) => reports.push(report) });
    const [a, b] = [engine.create(), engine.create()];
    await Promise.all([
      collect(a.run(job([append(a, range(0, 50))], 10))),
      collect(b.run(job([append(b, range(0, 70))], 3))),
    ]);
    const { promptTokens, decodeTokens, tokensComputed, steps } = engine.stats();
    expect({ promptTokens, decodeTokens }).toEqual({ promptTokens: 120, decodeTokens: 11 });
    expect(tokensComputed).toBe(131);
    expect(reports).toHaveLength(steps);
    expect(reports.reduce((sum, one) => sum + one.promptTokens + one.decodeTokens, 0)).toBe(131);
    expect(Math.max(...reports.map(({ entries }) => entries))).toBe(2);
    expect(runner.log.length).toBe(steps);
  });

  test("lets two long prompts and a short one progress alternately under a small budget", async () => {
    const { engine, runner } = rig(64, 16);
    const sequences = [200, 200, 20].map(() => engine.create());
    const order: number[] = [];
    await Promise.all(
      [200, 200, 20].map(async (length, place) => {
        const sequence = sequences[place]!;
        await collect(sequence.run(job([append(sequence, range(0, length))], 1)));
        order.push(place);
      }),
    );
    expect(order[0]).toBe(2);
    const served = (id: number) =>
      runner.log.map((entries) => entries.some(({ sequence }) => sequence === id));
    const gaps = [1, 2].map((id) => {
      const steps = served(id).flatMap((is, step) => (is ? [step] : []));
      return Math.max(...steps.slice(1).map((step, place) => step - steps[place]!));
    });
    expect(Math.max(...gaps)).toBeLessThanOrEqual(3);
  });
});
