import fc from "fast-check";
import { expect, test } from "vitest";
import { bar, RunView } from "../../src/cli/run-view.ts";
import type { AgentEvent } from "../../src/harness/events.ts";

const cacheUsage = { session: "s", kept: 900, relocated: 80, computed: 20, stale: 80, reason: "" };
const finish = {
  type: "answer-finished",
  reason: "stop",
  promptTokens: 1000,
  completionTokens: 5,
  cacheUsage,
  promptMs: 300,
  generateMs: 100,
} as const;

function shown(events: readonly AgentEvent[], isTTY: boolean): string {
  let text = "";
  const view = new RunView({ isTTY, columns: 60, write: (more) => (text += more) }, 2000);
  for (const event of events) view.show(event);
  return text;
}

const turn: readonly AgentEvent[] = [
  { type: "turn-started", turn: 1, used: 1000, limit: 2000 },
  { type: "text-delta", text: "I look\u001b[2J at\nit." },
  { type: "answer-finished", turn: 1, finish },
  {
    type: "compressor-finished",
    finishes: [{ ...finish, promptMs: 250, generateMs: 150, cacheUsage: { ...cacheUsage, computed: 214 } }],
  },
  {
    type: "block-compacted",
    tag: "ctx-0001",
    memory: "b012",
    replaced: ["b001", "b002", "b003"],
    tokensBefore: 4000,
    tokensAfter: 188,
  },
  { type: "block-appended", block: "b013", kind: "exchange", tokens: 50 },
  { type: "block-expanded", tag: "ctx-0001", copies: ["b014", "b015"], tokens: 1234 },
];

test("a compaction is shown with its cost, an exchange with its window use and the sources of its tokens", () => {
  expect(shown(turn, false)).toBe(
    [
      "     compacted b001…b003 into b012 (ctx-0001): −3,812 tokens, recomputed 214, 0.4 s",
      "[█████·····]  50 %   1 b013 I look [2J at it.  (in 1,000: kept 900, relocated 80, computed 20; 0.4 s)",
      "     expanded ctx-0001 as b014, b015: +1,234 tokens",
      "",
    ].join("\n"),
  );
});

test("on a terminal the line under way is rewritten and never longer than the screen", () => {
  const text = shown(turn, true);
  const drawn = text.split(/[\r\n]/).filter((part) => part.startsWith("\u001b[K["));
  expect(drawn.length).toBeGreaterThanOrEqual(2);
  expect(drawn.every((part) => Array.from(part).length - 3 < 60)).toBe(true);
  expect(text).toContain("\r\u001b[K     compacted b001");
});

test("no text of a model steers the terminal", () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), (given) => {
      const event: AgentEvent = { type: "text-delta", text: given };
      const text = shown([turn[0]!, event], true).replaceAll("\r\u001b[K", "");
      // biome-ignore lint/suspicious/noControlCharactersInRegex: that is what must not be there
      expect(text).not.toMatch(/[\u0000-\u001f\u007f-\u009f]/);
    }),
  );
});

test("the bar is full at the window and never longer", () => {
  expect([0, 0.5, 1, 1.7].map(bar)).toEqual([
    "[··········]   0 %",
    "[█████·····]  50 %",
    "[██████████] 100 %",
    "[██████████] 170 %",
  ]);
});
