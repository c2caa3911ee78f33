// Bad requests and an unusable pool against the whole stack on the tiny model: each gets its own error, and the
// server keeps running.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import type { Runner } from "../../src/engine/addon.ts";
import type { PocketError } from "../../src/errors.ts";
import { buildServer } from "../../src/server/app.ts";
import { serverOptions } from "../support/scripted-backend.ts";
import { ids, openTinyStack, type TinyStack, type TinyStackOptions, until } from "../support/tiny-stack.ts";

let stack: TinyStack;
let app: ReturnType<typeof buildServer>;

async function open(options: TinyStackOptions = {}, apiKeys: readonly string[] = []): Promise<void> {
  stack = await openTinyStack(options);
  app = buildServer(stack.backend, { ...serverOptions, apiKeys, activeRequests: 8 });
}
afterEach(async () => {
  await app.close();
  await stack.close();
});

const post = (payload: object, headers: Record<string, string> = {}) =>
  app.inject({ method: "POST", url: "/v1/completions", headers, payload: { max_tokens: 2, ...payload } });
const remove = (id: string, headers: Record<string, string> = {}) =>
  app.inject({ method: "DELETE", url: `/v1/sessions/${encodeURIComponent(id)}`, headers });
const map = (id: string, headers: Record<string, string> = {}) =>
  app.inject({ url: `/v1/sessions/${encodeURIComponent(id)}`, headers });

test("a pool of one page serves what fits in it and says of the rest that it never will", async () => {
  await open({ flags: { "cache.tokens": "16" } });
  for (let turn = 0; turn < 3; turn++) {
    const { statusCode, json } = await post({ prompt: ids(12, turn), max_tokens: 4 });
    expect([statusCode, json().usage.prompt_tokens]).toEqual([200, 12]);
  }
  const refused = await post({ prompt: ids(17) });
  expect([refused.statusCode, refused.json().error.code]).toEqual([503, "cache_too_small"]);
  expect(refused.json().error.message).toMatch(/18 tokens.*holds 16/);
  expect(refused.headers["x-should-retry"]).toBe("false");
  // The answer is cut to what the pool holds.
  const long = (await post({ prompt: ids(12, 9), max_tokens: 50 })).json();
  expect(long.usage.total_tokens).toBeLessThanOrEqual(16 + 1);
  expect((await post({ prompt: ids(5) })).statusCode).toBe(200);
});

test("two deletes at once are one 200 and one 404, also of a session that works", async () => {
  await open();
  await post({ prompt: ids(20), pocket: { session: "s" } });
  const idle = await Promise.all([remove("s"), remove("s")]);
  expect(idle.map(({ statusCode }) => statusCode).toSorted()).toEqual([200, 404]);
  const working = post({ prompt: ids(20), max_tokens: 1000, pocket: { session: "w" } });
  await until(() => stack.backend.sessions().some(({ busy }) => busy));
  const busy = await Promise.all([remove("w"), remove("w")]);
  expect(busy.map(({ statusCode }) => statusCode).toSorted()).toEqual([200, 404]);
  expect((await working).json().error.code).toBe("cancelled");
  await until(() => stack.runner.stats().pagesUsed === 0);
});

test("ids that never existed, and names made to trip, are 404 and nothing else", async () => {
  await open();
  await post({ prompt: ids(20), pocket: { session: "s" } });
  const names = ["never", "S", "s ", "__proto__", "constructor", "../../s", "s/..", "%00", "ü".repeat(80)];
  for (const name of names)
    for (const response of [await map(name), await remove(name)])
      expect([name, response.statusCode, response.json().error.code]).toEqual([
        name,
        404,
        "session_not_found",
      ]);
  expect((await map("s")).statusCode).toBe(200);
});

test("a session may be called anything printable, and lives and dies under that name", async () => {
  await open();
  for (const name of ["__proto__", "constructor", "../../etc", "a b", "ü", "x".repeat(256)]) {
    const answer = await post({ prompt: ids(20), pocket: { session: name } });
    expect([name, answer.json().pocket.session]).toEqual([name, name]);
    expect([name, (await map(name)).json().tokens]).toEqual([name, 21]);
    expect([name, (await remove(name)).statusCode]).toEqual([name, 200]);
  }
  expect((await post({ prompt: "x", pocket: { session: "x".repeat(257) } })).statusCode).toBe(400);
});

test("a session of another API key is 404, and its cells are of no use to that key", async () => {
  await open({}, ["ann", "bob"]);
  const [ann, bob] = [{ "x-api-key": "ann" }, { "x-api-key": "bob" }];
  const prompt = ids(100);
  await post({ prompt, pocket: { session: "s" } }, ann);
  for (const response of [await map("s", bob), await remove("s", bob)])
    expect([response.statusCode, response.json().error.code]).toEqual([404, "session_not_found"]);
  const other = (await post({ prompt, pocket: { session: "s" } }, bob)).json();
  expect([other.pocket.kept, other.pocket.relocated]).toEqual([0, 0]);
  expect((await post({ prompt, pocket: { session: "s" } }, ann)).json().pocket.kept).toBe(99);
  expect((await remove("s", bob)).statusCode).toBe(200);
  expect((await map("s", ann)).statusCode).toBe(200);
});

test("a folder for sessions that cannot be written is a warning, and the server runs without it", async () => {
  const folder = mkdtempSync(join(tmpdir(), "pocket-file-"));
  const file = join(folder, "no-folder");
  writeFileSync(file, "");
  const warnings: string[] = [];
  const log = (sentence: string) => warnings.push(sentence);
  await open({ flags: { "cache.tokens": "512", "cache.dir": join(file, "sessions") }, log });
  expect(warnings).toEqual([expect.stringMatching(/no-folder.* cannot be used/)]);
  for (let salt = 0; salt < 4; salt++)
    expect((await post({ prompt: ids(300, salt), pocket: { session: `s${salt}` } })).statusCode).toBe(200);
  expect(stack.backend.counts().diskWrites).toBe(0);
  rmSync(folder, { recursive: true });
});

test("cells of a sequence that is in a step cannot be changed, and the step ends unaffected", async () => {
  let inStep: (() => void) | undefined;
  const wrap = (runner: Runner): Runner =>
    new Proxy(runner, {
      get(target, key) {
        const value = Reflect.get(target, key) as unknown;
        if (typeof value !== "function") return value;
        if (key !== "step") return value.bind(target);
        return (...given: unknown[]) => {
          const result: unknown = value.apply(target, given);
          inStep?.();
          return result;
        };
      },
    });
  await open({ wrap });
  const expected = await stack.cold(ids(60));
  const codes: string[] = [];
  inStep = () => {
    const attempts = [
      () => stack.runner.splice(1, [{ start: 0, end: 1, count: 0 }]),
      () => stack.runner.fork(1, 1),
      () => stack.runner.newSequence(),
    ];
    for (const attempt of attempts) codes.push(codeOf(attempt));
  };
  const answer = await stack.ask(ids(60), { session: "s" });
  inStep = undefined;
  expect(answer.text).toBe(expected.text);
  expect(new Set(codes)).toEqual(new Set(["ENGINE_BUSY"]));
});

function codeOf(attempt: () => unknown): string {
  try {
    attempt();
    return "none";
  } catch (cause) {
    return (cause as PocketError).code;
  }
}

test("metrics of the whole stack are the sums of its cache usages, and its steps' tokens what the engine computed", async () => {
  await open();
  const usages: Record<string, number>[] = [];
  for (const [turn, prompt] of [ids(80), [...ids(80), 1, 2], ids(40, 2)].entries()) {
    const body = (await post({ prompt, pocket: { session: `s${turn >> 1}` } })).json();
    usages.push({ ...body.pocket, answered: body.usage.completion_tokens });
  }
  const sum = (part: string) => usages.reduce((total, usage) => total + usage[part]!, 0);
  const text = (await app.inject("/metrics")).body;
  const read = (name: string) =>
    Number(
      text
        .split("\n")
        .find((line) => line.startsWith(`${name} `))!
        .split(" ")[1],
    );
  expect(read("pocket_kept_tokens_total")).toBe(sum("kept"));
  expect(read("pocket_computed_tokens_total")).toBe(sum("computed"));
  expect(read("pocket_generation_tokens_total")).toBe(sum("answered"));
  expect(read('pocket_step_tokens_total{kind="prompt"}')).toBe(sum("computed"));
  // The last token of an answer is never fed back.
  expect(read('pocket_step_tokens_total{kind="decode"}')).toBe(sum("answered") - usages.length);
  const { tokensComputed, pagesUsed } = stack.runner.stats();
  expect(tokensComputed).toBe(sum("computed") + sum("answered") - usages.length);
  expect(read("pocket_cache_pages_lent")).toBe(pagesUsed);
  expect(read("pocket_sessions")).toBe(2);
});
