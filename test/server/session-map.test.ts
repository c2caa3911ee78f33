// What a client can see and order of a session's cells after an edit, on the whole stack: the map, forgetting,
// and what the server repairs while the session is idle.
import { afterEach, expect, test } from "vitest";
import { buildServer } from "../../src/server/app.ts";
import { metricReader, parseMetrics } from "../support/prometheus.ts";
import { serverOptions } from "../support/scripted-backend.ts";
import { openTinyStack, system, type TinyStack, turns, until, user } from "../support/tiny-stack.ts";

let stack: TinyStack;
let app: ReturnType<typeof buildServer>;

async function open(idleRepair: "true" | "false"): Promise<void> {
  stack = await openTinyStack({ flags: { idle_repair: idleRepair } });
  app = buildServer(stack.backend, serverOptions);
}
afterEach(async () => {
  await app.close();
  await stack.close();
});

const whole = [system("You keep the stack and tell the truth about it."), ...turns(9, "map", 10)];
const compacted = [whole[0]!, user("In short: words."), ...whole.slice(4)];

const url = "/v1/chat/completions";
async function ask(messages: object, pocket: object = {}) {
  const payload = { messages, max_tokens: 4, temperature: 0, pocket: { session: "s", ...pocket } };
  return (await app.inject({ method: "POST", url, payload })).json();
}

async function mapOf(id: string) {
  return (await app.inject(`/v1/sessions/${id}`)).json();
}

test("the map shows survivors as moved by what the edit saved, stale to the end, under their messages", async () => {
  await open("false");
  const before = await ask(whole);
  const after = await ask(compacted);
  const saved = before.usage.prompt_tokens - after.usage.prompt_tokens;
  const map = await mapOf("s");
  const moved = map.shifts.filter(([, , shift]: number[]) => shift === -saved);
  expect(moved).toHaveLength(1);
  const [start, end] = moved[0];
  expect(end - start).toBe(after.pocket.relocated);
  // What was computed behind them attended to them, and is no more exact than they are.
  expect(map.stale).toEqual([[start, map.tokens]]);
  expect(map.exact_tokens).toBe(start);
  expect(map.spans[0][2]).toBe("system");
  expect(map.spans.at(-1)[1]).toBe(map.tokens);
  const gaps = map.spans.slice(1).filter(([from]: number[], at: number) => from !== map.spans[at][1]);
  expect(gaps).toEqual([]);
});

test("forget computes everything behind the edit, and the answer is that of a cold start", async () => {
  await open("false");
  await ask(whole);
  const { pocket, choices } = await ask(compacted, { forget: true });
  expect([pocket.relocated, pocket.stale]).toEqual([0, 0]);
  expect(pocket.kept).toBeGreaterThan(20);
  const cold = await stack.cold(compacted, { maxTokens: 4 });
  expect(choices[0].message.content).toBe(cold.text);
  const map = await mapOf("s");
  expect([map.stale, map.exact_tokens]).toEqual([[], map.tokens]);
});

test("a session that is left alone is repaired, gauges say so, and the next turn costs itself only", async () => {
  await open("true");
  await ask(whole);
  const { pocket, choices } = await ask(compacted);
  expect(pocket.stale).toBeGreaterThan(100);
  await until(() => stack.backend.counts().staleTokens === 0);
  const read = metricReader(parseMetrics((await app.inject("/metrics")).body));
  expect(read("pocket_stale_tokens")).toBe(0);
  expect(read("pocket_repaired_tokens_total")).toBeGreaterThanOrEqual(pocket.relocated);
  expect(read('pocket_step_tokens_total{kind="background"}')).toBe(read("pocket_repaired_tokens_total"));
  const said = { role: "assistant" as const, content: choices[0].message.content };
  const next = await ask([...compacted, said, user("And?")]);
  expect([next.pocket.relocated, next.pocket.stale]).toEqual([0, 0]);
  expect(next.pocket.kept).toBeGreaterThan(next.usage.prompt_tokens - 40);
});
