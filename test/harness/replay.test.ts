// Costs of recorded runs under each policy: a replay has the same prompts as the run, and gives the numbers
// of the article's comparison (peak input, tokens computed).
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Message } from "../../src/chat/chat.ts";
import { formatTokens } from "../../src/context/catalog.ts";
import { CacheSimulator } from "../../src/harness/cache-simulator.ts";
import { readRecording } from "../../src/harness/recording.ts";
import { replay } from "../../src/harness/replay.ts";
import { count } from "../support/fake-chat.ts";
import { type Habit, record } from "./agents.ts";

const habits: readonly (readonly [string, Habit])[] = [
  [
    "one that compacts the oldest blocks",
    { turns: 60, size: (turn) => 300 + 40 * (turn % 7), compacts: { at: 8, blocks: 5, from: "front" } },
  ],
  [
    "one that compacts the newest blocks",
    { turns: 60, size: (turn) => 200 * (1 + (turn % 5)), compacts: { at: 10, blocks: 6, from: "back" } },
  ],
  [
    "one that expands what it compacted",
    { turns: 50, size: () => 500, compacts: { at: 6, blocks: 3, from: "front" }, expands: 30 },
  ],
];

describe.each(habits)("a recorded run of %s", (_name, habit) => {
  test("replays with the same prompts, and costs less than under ReAct", async () => {
    const { text, requests } = await record(habit);
    const recording = readRecording("run.jsonl", text);
    const pca = await replay(recording, "pca", count);
    const react = await replay(recording, "react", count);
    console.log(`${_name}: ${JSON.stringify({ pca, react })}`);

    const agent = requests.filter(({ fork }) => !fork);
    // The window of a replay is larger, and the catalog names it.
    const renamed = (message: Message): Message => {
      const content = message.content.replace(
        /of 100,000 tokens are in use \(\d+ %\)/,
        `of ${formatTokens(2 ** 31)} tokens are in use (0 %)`,
      );
      return { ...message, content };
    };
    const messagesOf = ({ messages }: (typeof requests)[number]) =>
      messages.reduce((sum, message) => sum + count(renamed(message)), 0);
    const tools = (names: readonly unknown[]) => count({ role: "system", content: JSON.stringify(names) });
    expect(pca.turns).toBe(agent.length);
    // The replay's tools have no descriptions.
    const offered = [...agent[0]!.tools!.slice(0, 2), { name: "read" }];
    expect(pca.peakInput).toBe(Math.max(...agent.map(messagesOf)) + tools(offered));
    expect(pca.compactions).toBeGreaterThanOrEqual(4);
    expect(pca.expands).toBe(habit.expands ? 1 : 0);

    expect(react).toMatchObject({ compactions: 0, expands: 0 });
    expect(react.turns).toBeLessThan(pca.turns);
    expect(react.computed).toBe(react.prefixOnly);
    expect(pca.peakInput).toBeLessThan(0.7 * react.peakInput);
    expect(pca.computed).toBeLessThan(pca.prefixOnly);
  });
});

const recordings = join(import.meta.dirname, "recordings");

// Peaks are not compared: the window of a replay is unlimited, so it runs expansions that the run refused.
describe.each(readdirSync(recordings).filter((name) => name.endsWith(".jsonl")))(
  "the real run %s",
  (name) => {
    test("replays completely, and suffix reuse computes less than prefix reuse", async () => {
      const recording = readRecording(name, readFileSync(join(recordings, name), "utf8"));
      const pca = await replay(recording, "pca", count);
      const react = await replay(recording, "react", count);
      console.log(`${name}: ${JSON.stringify({ pca, react })}`);
      expect(pca.turns).toBe(recording.steps.filter(({ kind }) => kind === "turn").length);
      expect(pca.compactions).toBe(recording.summaries.size);
      expect(pca.compactions).toBeGreaterThanOrEqual(2);
      expect(react).toMatchObject({ compactions: 0, expands: 0 });
      expect(pca.computed).toBeLessThan(pca.prefixOnly);
      expect(react.computed).toBe(react.prefixOnly);
    });
  },
);

test("under ReAct each message is computed once", async () => {
  const { text } = await record({ turns: 20, size: () => 300 });
  const recording = readRecording("run.jsonl", text);
  const { computed, peakInput } = await replay(recording, "react", count);
  const answers = recording.steps.flatMap((step) => (step.kind === "turn" ? [step.message] : []));
  // Answers were generated, not computed as prompt; the last answer is in no prompt.
  const generated = answers.slice(0, -1).reduce((sum, message) => sum + count(message), 0);
  expect(computed).toBe(peakInput - generated);
});

test.each([
  ["{", "line 1 is not JSON"],
  ["", "does not begin with a request"],
  ['{"type":"message","message":{"role":"assistant","content":""}}', "does not begin with a request"],
])("%j is refused as a recording", (text, why) => {
  expect(() => readRecording("x.jsonl", text)).toThrow(why);
});

test("the cache simulator's usage adds up and agrees with brute force on lists of different messages", () => {
  const lists = fc.uniqueArray(fc.integer({ min: 0, max: 12 }), { maxLength: 8 });
  fc.assert(
    fc.property(lists, lists, (first, second) => {
      const message = (number: number): Message => ({ role: "user", content: "x".repeat(number) });
      const simulator = new CacheSimulator(count);
      simulator.cost({ messages: first.map(message), session: "s" });
      const { promptTokens, cacheUsage } = simulator.cost({ messages: second.map(message), session: "s" });
      expect(cacheUsage.kept + cacheUsage.relocated + cacheUsage.computed).toBe(promptTokens);
      let prefix = 0;
      while (prefix < second.length && first[prefix] === second[prefix]) prefix++;
      const tokens = (numbers: readonly number[]) => numbers.reduce((sum, number) => sum + 10 + number, 0);
      expect(cacheUsage.kept).toBe(tokens(second.slice(0, prefix)));
      // Try every subset of the rest; the largest one that is in `first` in the same order is relocated.
      const rest = second.slice(prefix);
      let best = 0;
      for (let mask = 0; mask < 1 << rest.length; mask++) {
        const chosen = rest.filter((_, index) => mask & (1 << index));
        const indices = chosen.map((number) => first.indexOf(number, prefix));
        const isOrdered = indices.every((index, at) => index >= 0 && (at === 0 || index > indices[at - 1]!));
        if (isOrdered) best = Math.max(best, tokens(chosen));
      }
      expect(cacheUsage.relocated).toBe(best);
    }),
    { numRuns: 60 },
  );
});
