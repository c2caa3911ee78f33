// Agent runs over HTTP: off unless asked for, never without a key unless asked for, watched, left, cancelled, and
// no business of another key.
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { ChatEvent, ChatRequest } from "../../src/chat/chat.ts";
import { Store } from "../../src/context/store.ts";
import { LiveRuns } from "../../src/harness/live-runs.ts";
import { buildServer } from "../../src/server/app.ts";
import type { ServerOptions } from "../../src/server/backend.ts";
import { mcpProgram } from "../harness/mcp-program.ts";
import { count, type Line, ScriptedChat } from "../support/fake-chat.ts";
import { ScriptedBackend, serverOptions } from "../support/scripted-backend.ts";

let folder: string;
let closers: (() => unknown)[];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "pocket-http-runs-"));
  closers = [];
});
afterEach(async () => {
  for (const close of closers.reverse()) await close();
  rmSync(folder, { recursive: true });
});

class AgentBackend extends ScriptedBackend {
  constructor(private readonly script: (request: ChatRequest, turn: number) => Line | Promise<Line>) {
    super();
  }
  override async *chat(request: ChatRequest): AsyncGenerator<ChatEvent> {
    const line = await this.script(request, this.asked.push(request) - 1);
    request.signal?.throwIfAborted();
    yield* new ScriptedChat([line]).chat(request);
  }
}

async function serve(
  script: ConstructorParameters<typeof AgentBackend>[0],
  options: Partial<ServerOptions> & {
    readonly withoutKey?: boolean;
    readonly off?: boolean;
    readonly mcp?: readonly string[];
  } = {},
) {
  const backend = new AgentBackend(script);
  const store = new Store(join(folder, "runs.sqlite"));
  const workspaces = join(folder, "workspaces");
  const { withoutKey = false, off = false, mcp = [], ...more } = options;
  const runs = new LiveRuns({ store, count, model: "tiny", context: 50_000, workspaces, mcp });
  const app = buildServer(backend, {
    ...serverOptions,
    ...(off ? {} : { agent: { runs, withoutKey } }),
    ...more,
  });
  await app.listen({ host: "127.0.0.1", port: 0 });
  closers.push(
    () => store.close(),
    () => app.close(),
  );
  const url = `http://127.0.0.1:${(app.server.address() as AddressInfo).port}/v1/agent/runs`;
  const ask = async (method: string, path = "", body?: object, key?: string) => {
    const response = await fetch(url + path, {
      method,
      headers: {
        ...(body && { "content-type": "application/json" }),
        ...(key && { authorization: `Bearer ${key}` }),
      },
      ...(body && { body: JSON.stringify(body) }),
    });
    return { status: response.status, response };
  };
  const json = async (...given: Parameters<typeof ask>) => {
    const { status, response } = await ask(...given);
    // biome-ignore lint/suspicious/noExplicitAny: what came is looked at below
    return { status, body: (await response.json()) as any };
  };
  return { app, store, ask, json, backend };
}

async function eventsOf(response: Response): Promise<({ type: string } & Record<string, unknown>)[]> {
  const text = await response.text();
  const data = [...text.matchAll(/^data: (.*)$/gm)].map(([, line]) => line!);
  expect(data.at(-1)).toBe("[DONE]");
  return data.slice(0, -1).map((line) => JSON.parse(line));
}

const writes: Line = {
  text: "I write.",
  calls: [{ id: "1", name: "write", arguments: '{"path":"x.txt","content":"hi"}' }],
};

test("are off by default, with a sentence", async () => {
  const { json } = await serve(() => writes, { off: true });
  for (const [method, path] of [
    ["POST", ""],
    ["GET", ""],
    ["GET", "/x"],
    ["DELETE", "/x"],
  ] as const) {
    const { status, body } = await json(method, path, method === "POST" ? { task: "Go." } : undefined);
    expect([status, body.error.code]).toEqual([404, "agent_off"]);
    expect(body.error.message).toContain("agent.enabled");
  }
});

test("need a key, also on loopback, unless a setting allows it", async () => {
  const { json } = await serve(() => ({ text: "Done." }));
  expect((await json("POST", "", { task: "Go." })).body.error.code).toBe("agent_needs_key");
  expect((await json("GET", "/x")).status).toBe(403);
  const keyed = await serve(() => ({ text: "Done." }), { apiKeys: ["k"] });
  expect((await keyed.json("POST", "", { task: "Go." })).status).toBe(401);
  expect((await keyed.json("POST", "", { task: "Go.", stream: false }, "k")).status).toBe(202);
});

test("stream their events, work in a workspace of their key, and are there afterwards", async () => {
  const { ask, json } = await serve((_, turn) => (turn === 0 ? writes : { text: "Done." }), {
    apiKeys: ["k", "other"],
  });
  const { response } = await ask("POST", "", { task: "Write x.", workspace: "shop", window: 8192 }, "k");
  expect(response.headers.get("content-type")).toContain("text/event-stream");
  const events = await eventsOf(response);
  const types = events.map(({ type }) => type).filter((type) => type !== "text-delta");
  expect(types).toEqual([
    ...["run-started", "turn-started", "answer-finished", "tool-called", "tool-returned", "block-appended"],
    ...["turn-started", "answer-finished", "block-appended", "run-finished"],
  ]);
  const { id } = events[0]!;
  const { body } = await json("GET", `/${id}`, undefined, "k");
  expect(body).toMatchObject({
    id,
    status: "answered",
    answer: "Done.",
    turns: 2,
    window: 8192,
    harness: "pca",
  });
  expect((await json("GET", "", undefined, "k")).body.data).toHaveLength(1);
  // Another key's runs do not exist for this one.
  for (const [method, path] of [
    ["GET", `/${id}`],
    ["DELETE", `/${id}`],
  ] as const)
    expect((await json(method, path, undefined, "other")).status).toBe(404);
  expect((await json("POST", "", { resume: id, task: "More." }, "other")).status).toBe(404);
  expect((await json("GET", "", undefined, "other")).body.data).toEqual([]);
  expect(existsSync(join(folder, "workspaces", "shop"))).toBe(false);
});

test("live on when their reader leaves, can be watched again, and end when they are cancelled", async () => {
  let release = () => {};
  const gate = new Promise<void>((resolve) => {
    release = resolve;
  });
  const { ask, json } = await serve(
    async ({ signal }, turn) => {
      if (turn === 0) return writes;
      if (turn === 1) await gate;
      else
        await new Promise((_, reject) =>
          signal!.addEventListener("abort", () => reject(signal!.reason), { once: true }),
        );
      return writes;
    },
    { withoutKey: true },
  );
  const controller = new AbortController();
  const { body: started } = await json("POST", "", { task: "Go.", workspace: "w", stream: false });
  const { id } = started;
  const first = await ask("GET", `/${id}?stream=true`);
  await first.response.body!.cancel();
  controller.abort();
  await sleep(50);
  expect((await json("GET", `/${id}`)).body.status).toBe("open");
  expect((await json("POST", "", { resume: id })).body.error.code).toBe("run_busy");
  const again = await ask("GET", `/${id}?stream=true`);
  const events = eventsOf(again.response);
  release();
  await expect.poll(async () => (await json("GET", `/${id}`)).body.turns).toBe(2);
  expect((await json("DELETE", `/${id}`)).body).toEqual({
    id,
    object: "agent.run.cancelled",
    cancelled: true,
  });
  expect((await events).at(-1)).toMatchObject({ type: "run-stopped", code: "RUN_INTERRUPTED" });
  expect((await json("GET", `/${id}`)).body).toMatchObject({ status: "stopped", why: /interrupted/ });
  expect((await json("DELETE", `/${id}`)).body.cancelled).toBe(false);
});

test("that the server's end cuts off are resumed by the next server", async () => {
  const hang = ({ signal }: ChatRequest) =>
    new Promise<Line>((_, reject) =>
      signal!.addEventListener("abort", () => reject(signal!.reason), { once: true }),
    );
  const one = await serve((request, turn) => (turn === 0 ? writes : hang(request)), { withoutKey: true });
  const { id } = (await one.json("POST", "", { task: "Go.", workspace: "w", stream: false })).body;
  await expect.poll(async () => (await one.json("GET", `/${id}`)).body.turns).toBe(1);
  await one.app.close();
  one.store.close();
  const two = await serve(() => ({ text: "Done at last." }), { withoutKey: true });
  expect((await two.json("GET", `/${id}`)).body.status).toBe("stopped");
  await eventsOf((await two.ask("POST", "", { resume: id })).response);
  expect((await two.json("GET", `/${id}`)).body).toMatchObject({
    status: "answered",
    answer: "Done at last.",
    turns: 2,
  });
});

test.each([
  [{}, "task"],
  [{ task: "Go.", workspace: "../x" }, "workspace"],
  [{ task: "Go.", workspace: ".." }, "workspace"],
  [{ task: "Go.", window: 100_000 }, "window"],
  [{ task: "Go.", harness: "none" }, "harness"],
])("%j is refused by its field", async (body, param) => {
  const { json } = await serve(() => writes, { withoutKey: true });
  const { status, body: answer } = await json("POST", "", body);
  expect([status, answer.error.param]).toEqual([400, param]);
});

test("have the tools of the MCP servers that the server was started with, and no request names others", async () => {
  const asks: Line = { text: "", calls: [{ id: "1", name: "clock_tell", arguments: "{}" }] };
  const { ask, json } = await serve((_, turn) => (turn === 0 ? asks : { text: "It is late." }), {
    withoutKey: true,
    mcp: [mcpProgram(folder, "clock", "tell", '"half past nine"')],
  });
  const { response } = await ask("POST", "", { task: "What time is it?" });
  const events = await eventsOf(response);
  expect(events.find(({ type }) => type === "tool-returned")).toMatchObject({ text: "half past nine" });
  expect(events.at(-1)).toMatchObject({ type: "run-finished", answer: "It is late." });
  const named = await json("POST", "", { task: "Go.", mcp: ["x=/bin/true"] });
  expect(named.status).toBe(400);
});

test("end with a sentence when an MCP server of theirs cannot be used", async () => {
  const { ask } = await serve(() => ({ text: "Never." }), { withoutKey: true, mcp: ["gone=/none/such"] });
  const events = await eventsOf((await ask("POST", "", { task: "Go." })).response);
  expect(events.at(-1)).toMatchObject({ type: "run-stopped", code: "MCP_FAILED" });
});
