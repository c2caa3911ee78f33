// Several keys on one server: each sees only its own sessions, and a refusal reveals nothing about others.
import { afterEach, beforeEach, expect, test } from "vitest";
import { buildServer } from "../../src/server/app.ts";
import { ScriptedBackend, serverOptions } from "../support/scripted-backend.ts";

let backend: ScriptedBackend;
let app: ReturnType<typeof buildServer>;
const keys = ["key-of-ann", "key-of-bob"] as const;

beforeEach(() => {
  backend = new ScriptedBackend();
  app = buildServer(backend, { ...serverOptions, apiKeys: keys });
});
afterEach(() => app.close());

const as = (key: string) => ({ authorization: `Bearer ${key}` });
const get = (url: string, key: string) => app.inject({ url, headers: as(key) });

async function tenantOf(key: string): Promise<string> {
  const payload = { prompt: "x" };
  await app.inject({ method: "POST", url: "/v1/completions", headers: as(key), payload });
  return backend.asked.at(-1)!.tenant!;
}

test("a key stands for one tenant, the same after a restart, and does not show in its name", async () => {
  const [ann, bob] = [await tenantOf(keys[0]), await tenantOf(keys[1])];
  expect(ann).not.toBe(bob);
  expect(ann).not.toContain("ann");
  await app.close();
  app = buildServer(backend, { ...serverOptions, apiKeys: [keys[1], keys[0]] });
  expect(await tenantOf(keys[0])).toBe(ann);
});

test("without keys nobody has a tenant", async () => {
  await app.close();
  app = buildServer(backend, serverOptions);
  await app.inject({ method: "POST", url: "/v1/completions", payload: { prompt: "x" } });
  expect(backend.asked.at(-1)!.tenant).toBeUndefined();
});

test("another key's session is 404 in list, map and delete, with the words of one that never existed", async () => {
  backend.tenants.set("s-1", await tenantOf(keys[0]));
  expect((await get("/v1/sessions", keys[0])).json().data).toHaveLength(1);
  expect((await get("/v1/sessions", keys[1])).json().data).toEqual([]);
  const url = "/v1/sessions/s-1";
  const refused = [
    await get(url, keys[1]),
    await app.inject({ method: "DELETE", url, headers: as(keys[1]) }),
  ];
  const never = await get("/v1/sessions/s-9", keys[1]);
  for (const response of refused) {
    expect(response.statusCode).toBe(404);
    expect(response.body.replace("s-1", "s-9")).toBe(never.body);
  }
  expect((await get(url, keys[0])).statusCode).toBe(200);
  expect((await app.inject({ method: "DELETE", url, headers: as(keys[0]) })).statusCode).toBe(200);
});

test.each(["key-of-an", "KEY-OF-ANN", "key-of-ann,key-of-bob", ""])("%j is no key", async (key) => {
  expect((await get("/v1/sessions", key)).statusCode).toBe(401);
});

test("the map of a session has its spans, its stale cells and its shifts as ranges", async () => {
  await app.close();
  app = buildServer(backend, serverOptions);
  const map = (await app.inject("/v1/sessions/s-1")).json();
  expect(map).toEqual({
    id: "s-1",
    object: "session",
    tokens: 32,
    exact_tokens: 12,
    used_at: "2023-11-14T22:13:20.000Z",
    busy: false,
    named: true,
    stale_tokens: 20,
    stale: [[12, 32]],
    spans: [
      [0, 12, "system"],
      [12, 32, "user"],
    ],
    shifts: [
      [0, 12, 0],
      [12, 32, -5],
    ],
  });
});
