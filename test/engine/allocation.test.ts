// Requests without a free page for their next token: preempted, continued or recomputed, never lost.
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Engine } from "../../src/engine/engine.ts";
import type { Job, SequencePort } from "../../src/engine/job.ts";
import { faultyRunner } from "../support/faulty-runner.ts";
import { ScriptedRunner } from "../support/scripted-runner.ts";
import { append, collect, continuation, job, range, rig } from "./rig.ts";

const answer = (sequence: SequencePort, prompt: number[], count: number, options: Partial<Job> = {}) =>
  collect(sequence.run(job([append(sequence, prompt)], count, options)));

describe("answers that outgrow the pool", () => {
  test("preempt the youngest first and give the same tokens as in a large pool", async () => {
    const { engine, runner } = rig(8);
    const prompts = [range(0, 30), range(100, 130), range(200, 230)];
    const sequences = prompts.map(() => engine.create());
    const answers = await Promise.all(
      prompts.map(async (prompt, index) => {
        const tokens = await answer(sequences[index]!, prompt, 60);
        sequences[index]!.release();
        return tokens;
      }),
    );
    expect(answers).toEqual(prompts.map((prompt) => continuation(prompt, 60)));
    const { preemptions, promptTokens, preempted, running } = engine.stats();
    expect(preemptions).toBeGreaterThan(0);
    // A request that is recomputed reads its tokens again as a prompt.
    expect(promptTokens).toBeGreaterThan(90);
    expect({ preempted, running, busy: engine.busy }).toEqual({ preempted: 0, running: 0, busy: 0 });
    expect(runner.stats()).toMatchObject({ pagesUsed: 0, sequences: 0 });
  });

  test("continue draw numbers and the start of penalties after recomputation", async () => {
    const { engine, runner } = rig(6);
    const [a, b] = [engine.create(), engine.create()];
    const first = answer(a, range(0, 30), 40).finally(() => a.release());
    const second = answer(b, range(50, 80), 40).finally(() => b.release());
    await Promise.all([first, second]);
    expect(engine.stats().promptTokens).toBeGreaterThan(60);
    for (const id of [1, 2]) {
      const sampled = runner.log.flat().filter((entry) => entry.sequence === id && entry.sample);
      expect(sampled.map(({ sample }) => sample!.draw)).toEqual(range(0, 40));
      expect(new Set(sampled.map(({ sample }) => sample!.generatedFrom))).toEqual(new Set([30]));
    }
  });

  test("end with CACHE_FULL if nothing else runs, keep their cells, and can be continued", async () => {
    const { engine } = rig(4);
    const idle = engine.create();
    await answer(idle, range(0, 30), 0);
    const sequence = engine.create();
    const tokens: number[] = [];
    const run = async () => {
      for await (const { token } of sequence.run(job([append(sequence, range(60, 90))], 20)))
        tokens.push(token);
    };
    await expect(run()).rejects.toMatchObject({ code: "CACHE_FULL" });
    expect(sequence.length).toBe(32);
    idle.release();
    const rest = job([append(sequence, [tokens.at(-1)!])], 20 - tokens.length, {
      draw: tokens.length,
      generatedFrom: 30,
    });
    tokens.push(...(await collect(sequence.run(rest))));
    expect(tokens).toEqual(continuation(range(60, 90), 20));
  });

  test("evict idle sequences one at a time before a request is preempted", async () => {
    const { engine } = rig(6);
    const idle = [engine.create(), engine.create()];
    for (const sequence of idle) await answer(sequence, range(0, 32), 0);
    const evictIdle = () => {
      const next = idle.shift();
      next?.release();
      return next !== undefined;
    };
    const sequence = engine.create();
    expect(await answer(sequence, range(5, 35), 20, { evictIdle })).toEqual(continuation(range(5, 35), 20));
    expect(idle).toHaveLength(1);
    expect(engine.stats().preemptions).toBe(0);
  });

  test("wait for the file of an idle sequence whose pages are still being written", async () => {
    const { engine, runner } = rig(4);
    const idle = engine.create();
    await answer(idle, range(0, 32), 0);
    let open = () => {};
    runner.fileGate = new Promise((resolve) => {
      open = resolve;
    });
    let asked = 0;
    const evictIdle = () => {
      if (asked++ > 0) return false;
      void idle.save("idle.kv");
      idle.release();
      setTimeout(open, 10);
      return true;
    };
    const sequence = engine.create();
    expect(await answer(sequence, range(5, 37), 20, { evictIdle })).toEqual(continuation(range(5, 37), 20));
    expect(engine.stats().preemptions).toBe(1);
    const back = await engine.load("idle.kv");
    expect(Array.from(back.tokens())).toEqual(range(0, 32));
  });

  test("end with CACHE_TOO_SMALL if their cells were released and never fit again", async () => {
    const { engine } = rig(4, 32, { allocationTimeoutMs: 30 });
    const [a, b] = [engine.create(), engine.create()];
    const first = answer(a, range(0, 20), 44);
    const second = answer(b, range(50, 70), 44);
    expect(await first).toEqual(continuation(range(0, 20), 44));
    // The first sequence keeps its cells.
    await expect(second).rejects.toMatchObject({ code: "CACHE_TOO_SMALL" });
    expect(b.length).toBe(0);
    expect(engine.busy).toBe(0);
  });

  test("leave no cell behind when they are aborted while preempted", async () => {
    const { engine, runner } = rig(6);
    const controllers = range(0, 3).map(() => new AbortController());
    const sequences = controllers.map(() => engine.create());
    const answers = sequences.map((sequence, index) =>
      collect(
        sequence.run(
          job([append(sequence, range(index * 40, index * 40 + 20))], 200, {
            signal: controllers[index]!.signal,
          }),
        ),
      ),
    );
    runner.before = (step) => {
      if (step === 40) controllers[2]!.abort();
      if (step === 60) controllers[1]!.abort();
      if (step === 70) controllers[0]!.abort();
    };
    const ends = await Promise.allSettled(answers);
    for (const end of ends) expect(end).toMatchObject({ status: "rejected" });
    for (const sequence of sequences) sequence.release();
    expect(runner.stats()).toMatchObject({ pagesUsed: 0, sequences: 0 });
    expect(engine.busy).toBe(0);
  });
});

describe("a seeded stress with faults", () => {
  test("gives right answers or an expected error, and leaves no page, task or sequence behind", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 0, max: 2 ** 30 }),
        fc.integer({ min: 4, max: 14 }),
        async (seed, pages) => {
          const scripted = new ScriptedRunner(pages);
          const runner = faultyRunner(scripted, { seed, step: 0.02, splice: 0.05 });
          const engine = new Engine(runner, { stepTokens: 24, gapMs: 5, allocationTimeoutMs: 5 });
          const ends = range(0, 6).map(async (index) => {
            const prompt = range(seed % 90, (seed % 90) + 10 + 7 * index);
            const sequence = engine.create();
            const controller = new AbortController();
            if ((seed >> index) % 4 === 0) setTimeout(() => controller.abort(), index);
            const one = job([append(sequence, prompt)], 30, { signal: controller.signal });
            try {
              expect(await collect(sequence.run(one))).toEqual(continuation(prompt, 30));
            } catch (cause) {
              expect([
                "CACHE_FULL",
                "CACHE_TOO_SMALL",
                "CANCELLED",
                "RUNTIME_FAILED",
                "ENGINE_BROKEN",
              ]).toContain((cause as { code?: string }).code);
            } finally {
              sequence.release();
            }
          });
          await Promise.all(ends);
          expect(engine.busy).toBe(0);
          expect(engine.stats()).toMatchObject({ running: 0, preempted: 0, queued: 0 });
          expect(scripted.stats()).toMatchObject({ pagesUsed: 0, sequences: 0 });
        },
      ),
      { numRuns: 60 },
    );
  });
});
