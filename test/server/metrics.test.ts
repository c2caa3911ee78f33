import type { AddressInfo } from "node:net";
import { afterEach, beforeEach, expect, test } from "vitest";
import { pocketError } from "../../src/errors.ts";
import { buildServer } from "../../src/server/app.ts";
import { retryAfter } from "../../src/server/middleware/retry-after.ts";
import { metricReader, parseMetrics } from "../support/prometheus.ts";
import { cacheUsage, ScriptedBackend, serverOptions } from "../support/scripted-backend.ts";

let backend: ScriptedBackend;
let app: ReturnType<typeof buildServer>;

beforeEach(() => {
  backend = new ScriptedBackend();
  app = buildServer(backend, serverOptions);
});
afterEach(() => app.close());

const ask = (more: object = {}) =>
  app.inject({ method: "POST", url: "/v1/completions", payload: { prompt: "x", ...more } });
const numbers = async () => parseMetrics((await app.inject("/metrics")).body);

test("the numbers of prompts are the sums of the cache usages, streamed or not", async () => {
  for (const stream of [false, true, false]) expect((await ask({ stream })).statusCode).toBe(200);
  const read = metricReader(await numbers());
  expect(read("pocket_kept_tokens_total")).toBe(3 * cacheUsage.kept);
  expect(read("pocket_relocated_tokens_total")).toBe(3 * cacheUsage.relocated);
  expect(read("pocket_computed_tokens_total")).toBe(3 * cacheUsage.computed);
  expect(read("pocket_prompt_tokens_total")).toBe(3 * 32);
  expect(read("pocket_generation_tokens_total")).toBe(3 * 4);
  expect(read("pocket_prefix_cache_queries_total")).toBe(3 * 32);
  expect(read("pocket_prefix_cache_hits_total")).toBe(3 * (cacheUsage.kept + cacheUsage.relocated));
  expect(read('pocket_request_success_total{finished_reason="stop"}')).toBe(3);
  expect(read("pocket_time_to_first_token_seconds_count")).toBe(3);
  expect(read("pocket_inter_token_latency_seconds_count")).toBe(3 * 3);
  expect(read("pocket_request_queue_time_seconds_count")).toBe(3);
  expect(read("pocket_requests_cancelled_total")).toBe(0);
});

test("steps are counted by the kind of their tokens, and gauges are read when asked", async () => {
  const noDrafts = { draftTokens: 0, acceptedTokens: 0 };
  backend.stepped({
    entries: 3,
    promptTokens: 40,
    decodeTokens: 2,
    backgroundTokens: 0,
    ...noDrafts,
    ms: 20,
  });
  backend.stepped({
    entries: 1,
    promptTokens: 0,
    decodeTokens: 0,
    backgroundTokens: 128,
    ...noDrafts,
    ms: 30,
  });
  const read = metricReader(await numbers());
  expect(read("pocket_steps_total")).toBe(2);
  expect(read('pocket_step_tokens_total{kind="prompt"}')).toBe(40);
  expect(read('pocket_step_tokens_total{kind="decode"}')).toBe(2);
  expect(read('pocket_step_tokens_total{kind="background"}')).toBe(128);
  expect(read("pocket_step_seconds_sum")).toBeCloseTo(0.05);
  expect(read("pocket_step_batch_size_sum")).toBe(4);
  expect(read("pocket_cache_pages_free")).toBe(10);
  expect(read("pocket_kv_cache_usage_perc")).toBe(6 / 16);
  expect(read("pocket_stale_tokens")).toBe(20);
  backend.counted = { ...backend.counted, evictions: 7, staleTokens: 0 };
  const later = metricReader(await numbers());
  expect(later("pocket_evictions_total")).toBe(7);
  expect(later("pocket_stale_tokens")).toBe(0);
});

test("an error is counted by its code, and a bad field before the context not as a request that failed", async () => {
  backend.refusal = pocketError("CACHE_FULL", 1, 16, 40);
  expect((await ask()).statusCode).toBe(503);
  expect((await ask({ temperature: 9 })).statusCode).toBe(400);
  const read = metricReader(await numbers());
  expect(read('pocket_requests_failed_total{code="CACHE_FULL"}')).toBe(1);
  expect([...(await numbers()).keys()].filter((name) => name.includes("failed_total{"))).toHaveLength(1);
  expect(read("pocket_num_requests_running")).toBe(0);
});

test("clients that leave are counted once each: in the queue, before the first token, in the middle", async () => {
  await app.listen({ host: "127.0.0.1", port: 0 });
  const { port } = app.server.address() as AddressInfo;
  backend.tokenMs = 400;
  const leaving = (ms: number, stream: boolean) =>
    fetch(`http://127.0.0.1:${port}/v1/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ prompt: "x", stream }),
      signal: AbortSignal.timeout(ms),
    }).then((response) => response.text());
  // Two have places; the third waits.
  const left = await Promise.allSettled([leaving(300, true), leaving(600, true), leaving(200, false)]);
  expect(left.map(({ status }) => status)).toEqual(["rejected", "rejected", "rejected"]);
  while (backend.live > 0) await new Promise((resolve) => setTimeout(resolve, 5));
  const read = metricReader(await numbers());
  expect(read("pocket_requests_cancelled_total")).toBe(3);
  expect(read("pocket_num_requests_running")).toBe(0);
  expect(read("pocket_prompt_tokens_total")).toBe(0);
});

test("two servers in one process count for themselves", async () => {
  const other = buildServer(new ScriptedBackend(), serverOptions);
  await ask();
  const read = metricReader(parseMetrics((await other.inject("/metrics")).body));
  expect(read("pocket_prompt_tokens_total")).toBe(0);
  await other.close();
});

test("every name has the prefix, a help line and a type", async () => {
  const { body, headers } = await app.inject("/metrics");
  expect(headers["content-type"]).toMatch(/^text\/plain; version=0\.0\.4/);
  const types = [...body.matchAll(/^# TYPE (\S+) (counter|gauge|histogram)$/gm)].map(([, name]) => name!);
  expect(types.length).toBeGreaterThan(25);
  expect(types.filter((name) => !name.startsWith("pocket_"))).toEqual([]);
  for (const name of types) expect(body).toMatch(new RegExp(`^# HELP ${name} \\S.{8,}$`, "m"));
});

test("Retry-After grows with the queue and the time that places are held, and never passes a minute", () => {
  const full = pocketError("QUEUE_FULL", 8);
  const pace = { active: 2, queued: 8, averageServedMs: 4000, limit: 2 };
  expect(retryAfter(full, pace)).toBe(18);
  expect(retryAfter(full, { ...pace, queued: 0 })).toBe(2);
  expect(retryAfter(full, { ...pace, averageServedMs: 0 })).toBe(1);
  expect(retryAfter(full, { ...pace, averageServedMs: 1e9 })).toBe(60);
  expect(retryAfter(pocketError("CACHE_FULL", 1, 16, 40), pace)).toBe(2);
  expect(retryAfter(pocketError("CACHE_TOO_SMALL", 900, 512), pace)).toBe(60);
  expect(retryAfter(pocketError("UNAUTHORIZED"), pace)).toBeUndefined();
});
