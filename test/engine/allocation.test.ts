// Answers that find no page for their next token: parked, seated again, given up and read again, never lost.
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
  test("give way to the oldest, one after another, and say what they would in a roomy pool", async () => {
    const { engine, runner } = rig(8);
    const prompts = [range(0, 30), range(100, 130), range(200, 230)];
    const sequences = prompts.map(() => engine.create());
    const answers = await Promise.all(
      prompts.map(async (prompt, place) => {
        const tokens = await answer(sequences[place]!, prompt, 60);
        sequences[place]!.release();
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

  test("keep drawing numbers and penalties' start where they were after reading again", async () => {
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

  test("that wait alone end with CACHE_FULL, keep their cells, and go on where they were", async () => {
    const { engine } = rig(4);
    const idle = engine.create();
    await answer(idle, range(0, 30), 0);
    const sequence = engine.create();
    const said: number[] = [];
    const run = async () => {
      for await (const { token } of sequence.run(job([append(sequence, range(60, 90))], 20)))
        said.push(token);
    };
    await expect(run()).rejects.toMatchObject({ code: "CACHE_FULL" });
    expect(sequence.length).toBe(32);
    idle.release();
    const rest = job([append(sequence, [said.at(-1)!])], 20 - said.length, {
      draw: said.length,
      generatedFrom: 30,
    });
    said.push(...(await collect(sequence.run(rest))));
    expect(said).toEqual(continuation(range(60, 90), 20));
  });

  test("let go of what is idle before anybody waits, one sequence at a time", async () => {
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

  test("that gave their cells up and can never have them back end with CACHE_TOO_SMALL", async () => {
    const { engine } = rig(4, 32, { allocationTimeoutMs: 30 });
    const [a, b] = [engine.create(), engine.create()];
    const first = answer(a, range(0, 20), 44);
    const second = answer(b, range(50, 70), 44);
    expect(await first).toEqual(continuation(range(0, 20), 44));
    // The first sequence keeps its cells: nobody lets go of them.
    await expect(second).rejects.toMatchObject({ code: "CACHE_TOO_SMALL" });
    expect(b.length).toBe(0);
    expect(engine.busy).toBe(0);
  });

  test("leave nothing behind when their readers go while they are parked", async () => {
    const { engine, runner } = rig(6);
    const controllers = range(0, 3).map(() => new AbortController());
    const sequences = controllers.map(() => engine.create());
    const answers = sequences.map((sequence, place) =>
      collect(
        sequence.run(
          job([append(sequence, range(place * 40, place * 40 + 20))], 200, {
            signal: controllers[place]!.signal,
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
  test("answers right or with an error of the table, and leaves no page, task or sequence behind", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 0, max: 2 ** 30 }),
        fc.integer({ min: 4, max: 14 }),
        async (seed, pages) => {
          const scripted = new ScriptedRunner(pages);
          const runner = faultyRunner(scripted, { seed, step: 0.02, splice: 0.05 });
          const engine = new Engine(runner, { stepTokens: 24, gapMs: 5, allocationTimeoutMs: 5 });
          const ends = range(0, 6).map(async (place) => {
            const prompt = range(seed % 90, (seed % 90) + 10 + 7 * place);
            const sequence = engine.create();
            const controller = new AbortController();
            if ((seed >> place) % 4 === 0) setTimeout(() => controller.abort(), place);
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
