import { describe, expect, test } from "vitest";
import { append, collect, continuation, job, range, rig } from "./rig.ts";

describe("the engine", () => {
  test("reads a prompt in chunks and feeds back all but the last sampled token", async () => {
    const { runner, engine } = rig();
    const sequence = engine.create();
    const prompt = range(0, 70);
    expect(await collect(sequence.run(job([append(sequence, prompt)], 5)))).toEqual(continuation(prompt, 5));
    expect(sequence.length).toBe(74);
    expect(runner.log.map(([entry]) => entry!.tokens.length)).toEqual([32, 32, 6, 1, 1, 1, 1]);
  });

  test("fills two gaps front to back in one step and samples once both are closed", async () => {
    const { runner, engine } = rig();
    const sequence = engine.create();
    await collect(sequence.run(job([append(sequence, range(0, 40))], 0)));
    const splices = [
      { start: 10, end: 20, tokens: Int32Array.of(500, 501, 502) },
      { start: 40, end: 40, tokens: Int32Array.of(600, 601) },
    ];
    const whole = [...range(0, 10), 500, 501, 502, ...range(20, 40), 600, 601];
    const before = runner.log.length;
    expect(await collect(sequence.run(job(splices, 3)))).toEqual(continuation(whole, 3));
    expect(runner.log.slice(before).map(([entry]) => entry!.tokens.length)).toEqual([5, 1, 1]);
  });

  test("ends at a stop token, reports it, and gives it no cell", async () => {
    const { engine } = rig();
    const sequence = engine.create();
    const expected = continuation([1, 2, 3], 4);
    const stopTokens = new Set([expected[2]!]);
    expect(await collect(sequence.run(job([append(sequence, [1, 2, 3])], 50, { stopTokens })))).toEqual(
      expected.slice(0, 3),
    );
    expect(sequence.length).toBe(5);
    expect(Array.from(sequence.tokens())).toEqual([1, 2, 3, ...expected.slice(0, 2)]);
  });

  test("lets a stream go on one token per step while another prompt is read", async () => {
    const { runner, engine } = rig();
    const stream = engine.create();
    const reader = engine.create();
    const first = collect(stream.run(job([append(stream, [5])], 20)));
    const second = collect(reader.run(job([append(reader, range(0, 300))], 1)));
    await Promise.all([first, second]);
    const shared = runner.log.filter((entries) => entries.length === 2);
    expect(shared.length).toBeGreaterThanOrEqual(9);
    expect(shared.every((entries) => entries[0]!.tokens.length === 1)).toBe(true);
  });

  test("gives a stream the same tokens alone and among others", async () => {
    const { engine } = rig(64, 48);
    const prompts = [range(0, 60), range(3, 40), range(9, 90), [1]];
    const together = await Promise.all(
      prompts.map((prompt) => {
        const sequence = engine.create();
        return collect(sequence.run(job([append(sequence, prompt)], 12)));
      }),
    );
    expect(together).toEqual(prompts.map((prompt) => continuation(prompt, 12)));
  });

  test("stops computing within one step when the signal fires, and leaves no gap behind", async () => {
    const { runner, engine } = rig();
    const sequence = engine.create();
    const controller = new AbortController();
    runner.before = (step) => {
      if (step === 2) controller.abort();
    };
    const answer = collect(
      sequence.run(job([append(sequence, range(0, 200))], 5, { signal: controller.signal })),
    );
    await expect(answer).rejects.toMatchObject({ code: "CANCELLED" });
    expect(runner.log.length).toBe(2);
    expect(sequence.length).toBe(64);
    expect(runner.sequence(1)).toMatchObject({ length: 64, gapTokens: 0 });
  });

  test("ends a job whose reader leaves early, before the reader continues", async () => {
    const { runner, engine } = rig();
    const sequence = engine.create();
    for await (const _ of sequence.run(job([append(sequence, [1, 2])], 100))) break;
    const steps = runner.log.length;
    expect(await collect(sequence.run(job([append(sequence, [3])], 1)))).toHaveLength(1);
    expect(runner.log.length).toBeLessThanOrEqual(steps + 2);
  });

  test("refuses an edit that does not fit without touching the sequence or the others", async () => {
    const { engine } = rig(4);
    const small = engine.create();
    const large = engine.create();
    await collect(small.run(job([append(small, range(0, 10))], 0)));
    const refused = collect(large.run(job([append(large, range(0, 100))], 1)));
    await expect(refused).rejects.toMatchObject({ code: "CACHE_FULL", status: 503 });
    expect(large.length).toBe(0);
    expect(await collect(small.run(job([append(small, [7])], 2)))).toEqual(
      continuation([...range(0, 10), 7], 2),
    );
  });

  test("forks what is filled, also while the source is being read on", async () => {
    const { engine } = rig();
    const source = engine.create();
    await collect(source.run(job([append(source, range(0, 50))], 0)));
    const running = collect(source.run(job([append(source, range(50, 150))], 2)));
    const child = source.fork(40);
    expect(child.length).toBe(40);
    const answer = await collect(child.run(job([append(child, [9])], 2)));
    expect(answer).toEqual(continuation([...range(0, 40), 9], 2));
    expect(await running).toEqual(continuation(range(0, 150), 2));
  });

  test("ends the jobs of a failing step and serves the next one", async () => {
    const { runner, engine } = rig();
    const sequence = engine.create();
    runner.before = (step) => {
      if (step === 2) throw new Error("out of luck");
    };
    const failing = collect(sequence.run(job([append(sequence, range(0, 60))], 3)));
    await expect(failing).rejects.toThrow("out of luck");
    expect(sequence.length).toBe(32);
    const whole = [...range(0, 32), 1];
    expect(await collect(sequence.run(job([append(sequence, [1])], 2)))).toEqual(continuation(whole, 2));
  });

  test("is broken after three failing steps in a row and says since when", async () => {
    const { runner, engine } = rig();
    runner.before = () => {
      throw new Error("dead");
    };
    for (let i = 0; i < 3; i++) {
      const sequence = engine.create();
      await expect(collect(sequence.run(job([append(sequence, [1])], 1)))).rejects.toThrow("dead");
    }
    expect(engine.broken?.message).toBe("dead");
    const sequence = engine.create();
    expect(() => sequence.run(job([append(sequence, [1])], 1))).toThrow(
      expect.objectContaining({ code: "ENGINE_BROKEN" }),
    );
  });

  test("releases a running sequence after its step, once", async () => {
    const { runner, engine } = rig();
    const sequence = engine.create();
    const answer = collect(sequence.run(job([append(sequence, range(0, 100))], 5)));
    sequence.release();
    sequence.release();
    await expect(answer).rejects.toMatchObject({ code: "CANCELLED" });
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect(runner.sequences.size).toBe(0);
  });

  test("closes after the step under way and ends what runs", async () => {
    const { runner, engine } = rig();
    const sequence = engine.create();
    const answer = collect(sequence.run(job([append(sequence, range(0, 100))], 5)));
    const closed = engine.close();
    await expect(answer).rejects.toMatchObject({ code: "ENGINE_CLOSED" });
    await closed;
    expect(runner.closed).toBe(true);
    expect(() => engine.create().run(job([], 1))).toThrow();
  });
});
