// Constraints of several answers in one batch: each is asked for its own masks and told its own tokens, also when an
// answer is parked for want of pages and read again.
import { expect, test } from "vitest";
import type { Constraint } from "../../src/engine/job.ts";
import { scriptedVocab } from "../support/scripted-runner.ts";
import { append, collect, continuation, job, range, rig } from "./rig.ts";

/** Tokens that leave `rest` when divided by 3; ends after `count`. */
class EveryThird implements Constraint {
  readonly accepted: number[] = [];

  constructor(
    private readonly rest: number,
    private readonly count = Number.POSITIVE_INFINITY,
  ) {}

  mask(): Int32Array {
    const mask = new Int32Array(Math.ceil(scriptedVocab / 32));
    for (let id = this.rest; id < scriptedVocab; id += 3) mask[id >> 5]! |= 1 << (id & 31);
    return mask;
  }

  accept(token: number): void {
    this.accepted.push(token);
  }

  get terminated(): boolean {
    return this.accepted.length >= this.count;
  }
}

test("two constrained answers and a free one share steps, and each keeps to its own", async () => {
  const { engine, runner } = rig();
  const constraints = [new EveryThird(0), new EveryThird(1), undefined];
  const prompts = [range(0, 5), range(10, 15), range(20, 25)];
  const answers = await Promise.all(
    prompts.map((prompt, place) => {
      const sequence = engine.create();
      const constraint = constraints[place];
      return collect(sequence.run(job([append(sequence, prompt)], 12, constraint ? { constraint } : {})));
    }),
  );
  expect(runner.log.some((entries) => entries.length === 3)).toBe(true);
  for (const rest of [0, 1]) {
    expect(answers[rest]).toHaveLength(12);
    expect(answers[rest]!.every((token) => token % 3 === rest)).toBe(true);
    expect(constraints[rest]!.accepted).toEqual(answers[rest]);
  }
  expect(answers[2]).toEqual(continuation(prompts[2]!, 12));
});

test("an answer ends with the token that terminates its constraint, and chunks of a prompt ask for no mask", async () => {
  const { engine, runner } = rig();
  const sequence = engine.create();
  const constraint = new EveryThird(2, 4);
  const tokens = await collect(sequence.run(job([append(sequence, range(0, 70))], 50, { constraint })));
  expect(tokens).toHaveLength(4);
  expect(runner.log.flat().filter(({ sample }) => sample?.mask)).toHaveLength(4);
  expect(sequence.length).toBe(73);
});

test("answers that run out of pages and are resumed are told every token once", async () => {
  const free = rig(64);
  const tight = rig(6);
  const run = async ({ engine }: typeof free) => {
    const constraints = [new EveryThird(0), new EveryThird(1)];
    const answers = await Promise.all(
      constraints.map((constraint, place) => {
        const sequence = engine.create();
        const answer = sequence.run(job([append(sequence, range(place, place + 20))], 40, { constraint }));
        return collect(answer).finally(() => sequence.release());
      }),
    );
    expect(constraints.map(({ accepted }) => accepted)).toEqual(answers);
    return answers;
  };
  expect(await run(tight)).toEqual(await run(free));
});
