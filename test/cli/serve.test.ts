// `pocket` as a process: what it prints, how it ends. The tiny model lies in a models folder of its own.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ensureTinyModel } from "../support/tiny-model.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));
let folder: string;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "pocket-serve-"));
  await ensureTinyModel(folder, { context: 8192 });
});
afterAll(() => rmSync(folder, { recursive: true }));

interface Run {
  readonly process: ChildProcess;
  readonly output: { out: string; err: string };
  readonly ended: Promise<number | null>;
}

function pocket(...parameters: string[]): Run {
  const child = spawn(process.execPath, ["--import", "tsx", "src/main.ts", ...parameters], {
    cwd: root,
    env: { PATH: process.env.PATH, HOME: folder, POCKET_CACHE: folder },
  });
  const output = { out: "", err: "" };
  child.stdout.on("data", (data) => {
    output.out += data;
  });
  child.stderr.on("data", (data) => {
    output.err += data;
  });
  return { process: child, output, ended: once(child, "close").then(([status]) => status as number | null) };
}

async function serving(): Promise<Run & { readonly url: string }> {
  const run = pocket(
    ...["serve", "--model", "tiny", "--weights", "f32", "--activations", "f32", "--port", "0"],
    ...["--cache-tokens", "8192", "--step-tokens", "1"],
  );
  const early = run.ended.then(() => {
    throw new Error(`it ended early: ${run.output.err}`);
  });
  early.catch(() => {});
  const listening = async () => {
    while (!run.output.out.includes("curl")) await new Promise((resolve) => setTimeout(resolve, 20));
  };
  await Promise.race([listening(), early]);
  return { ...run, url: /listening on (http:\S+)/.exec(run.output.out)![1]! };
}

/** A stream that cannot be at its end soon: its answer is a text of two thousand characters, by grammar. */
function slowStream(url: string): Promise<Response> {
  const messages = [{ role: "user", content: "Count." }];
  const counted = Array.from({ length: 540 }, (_, number) => number).join(" ");
  const json_schema = { name: "counted", schema: { type: "string", enum: [counted] } };
  return fetch(
    `${url}/v1/chat/completions`,
    post({
      messages,
      stream: true,
      response_format: { type: "json_schema", json_schema },
      pocket: { lookup: false },
    }),
  );
}

function post(body: object): RequestInit {
  return { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
}

test("serve prints where it listens and a line to try, and Ctrl-C ends live streams with an error and the process with 0", async () => {
  const run = await serving();
  expect(run.output.out).toMatch(/listening on http:\/\/127\.0\.0\.1:\d+ \(tiny, ready in/);
  expect((await fetch(`${run.url}/health`)).status).toBe(200);
  const stream = await slowStream(run.url);
  const reader = stream.body!.getReader();
  await reader.read();
  run.process.kill("SIGINT");
  let rest = "";
  for (let next = await reader.read(); !next.done; next = await reader.read()) {
    rest += new TextDecoder().decode(next.value);
  }
  expect(rest).toContain('"code":"engine_closed"');
  expect(rest).not.toContain("[DONE]");
  expect(await run.ended).toBe(0);
  expect(run.output.err).toMatch(/^pocket: SIGINT: closing/);
}, 60_000);

test("a port that is taken is one line and status 1, before the model is opened", async () => {
  const other = createServer().listen(0, "127.0.0.1");
  await once(other, "listening");
  const { port } = other.address() as { port: number };
  const run = pocket("serve", "--model", "tiny", "--weights", "f32", "--port", String(port));
  expect(await run.ended).toBe(1);
  expect(run.output.err).toBe(
    `pocket: Port ${port} on 127.0.0.1 is in use. Stop the other program or pass --port.\n`,
  );
  other.close();
}, 60_000);

test.each([
  [
    ["serve", "--model", "no-such-model", "--port", "0"],
    /^pocket: The model 'no-such-model.*' is not in .*pocket pull.*\n$/,
  ],
  [["serve", "--port", "many"], /^pocket: --port must be a whole number from 0 to 65535.*\n$/],
  [
    ["serve", "--cache-tokns", "5"],
    /^error: unknown option '--cache-tokns'\n\(Did you mean --cache-tokens\?\)\n$/,
  ],
  [["pull", "no-such-model"], /^pocket: There is no model 'no-such-model' in the registry; it has .*\n$/],
  [
    ["import", "missing.gguf", "--id", "x"],
    /^pocket: missing\.gguf is not a usable GGUF file: there is no such file.*\n$/,
  ],
  [["import", "package.json", "--id", "x"], /^pocket: .*package\.json is not a usable GGUF file: .*\n$/],
  [["import", "package.json", "--id", "../x"], /^pocket: --id must be letters.*\n$/],
])(
  "%j ends with status 1 and says why",
  async (parameters, message) => {
    const run = pocket(...parameters);
    expect(await run.ended).toBe(1);
    expect(run.output.err).toMatch(message);
  },
  30_000,
);

test("ls shows what can be pulled and what is here, config shows where values come from", async () => {
  const list = pocket("ls");
  expect(await list.ended).toBe(0);
  expect(list.output.out).toMatch(/qwen2\.5-coder-0\.5b .*to pull/);
  expect(list.output.out).toMatch(/tiny +f32 .*imported/);
  const keys = ["--server-api-key", "hush", "--server-api-keys", "hush-ann,hush-bob"];
  const config = pocket("config", "--port", "9000", ...keys, "--no-idle-repair", "--cache-disk", "2G");
  expect(await config.ended).toBe(0);
  expect(config.output.out).toMatch(/^port +9000 port +flag/m);
  expect(config.output.out).toMatch(/^models\.dir .*environment/m);
  expect(config.output.out).toMatch(/^server\.api_keys +2 secrets +flag/m);
  expect(config.output.out).not.toContain("hush");
  expect(config.output.out).toMatch(/^idle_repair +false switch +flag/m);
  expect(config.output.out).toMatch(/^cache\.disk +2147483648 bytes +flag/m);
  expect(config.output.out).toMatch(/^cache\.dir +none, a folder +default/m);
}, 30_000);
