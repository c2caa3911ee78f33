// pocket run and pocket runs, as a person and as a program see them: on a scripted model, on the tiny model in this
// process, and on a server over HTTP.
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { openRemoteRuntime } from "../../src/cli/agent-runtime.ts";
import { packageRoot } from "../../src/cli/package-root.ts";
import { parseTokens, type RunFlags, resume, run } from "../../src/cli/run.ts";
import { checkRuns, exportOne, listRuns, replayFile, showRun } from "../../src/cli/runs.ts";
import { Config } from "../../src/config/config.ts";
import { count, type Script, ScriptedChat } from "../support/fake-chat.ts";
import { startTinyServer } from "../support/tiny-server.ts";

let folder: string;
let config: Config;
let shown: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "pocket-cli-"));
  mkdirSync(join(folder, "work"));
  config = Config.read({ flags: { "agent.runs": join(folder, "runs.sqlite") }, environment: {} });
  shown = "";
});
afterEach(() => rmSync(folder, { recursive: true }));

const screen = {
  write: (text: string) => {
    shown += text;
  },
};
const scripted = (script: Script) => ({
  screen,
  openRuntime: async () => ({
    chat: new ScriptedChat(script),
    count,
    context: 100_000,
    window: 32_768,
    close: async () => {},
  }),
});
const flags = (more: Partial<RunFlags> = {}): RunFlags => ({
  harness: "pca",
  maxTurns: "20",
  window: "32k",
  workspace: join(folder, "work"),
  id: "run-1",
  ...more,
});
const call = (name: string, given: object) => [{ id: `${name}-1`, name, arguments: JSON.stringify(given) }];
const lines = (show: (print: (line: string) => void) => void) => {
  const out: string[] = [];
  show((line) => out.push(line));
  return out;
};

/** Writes a file, reads it, compacts both, reads what the memory says, answers. */
const worker: Script = ({ fork }, turn) => {
  if (fork) return { text: "x.txt was written and read." };
  const steps = [
    { text: "I write.", calls: call("write", { path: "x.txt", content: `${"hello\n".repeat(60)}` }) },
    { text: "I read.", calls: call("read", { path: "x.txt" }) },
    { text: "I run.", calls: call("shell", { command: "wc -l < x.txt" }) },
    { text: "I compact.", calls: call("compact_block", { start: "b001", end: "b002" }) },
  ];
  return steps[turn] ?? { text: "It has 60 lines." };
};

describe("a run", () => {
  test("is shown with a line per exchange, a line per compaction with its cost, and the sums", async () => {
    await run("Count the lines.", flags(), config, scripted(worker));
    expect(readFileSync(join(folder, "work", "x.txt"), "utf8")).toHaveLength(360);
    expect(shown).toMatch(/^run run-1\n/);
    expect(shown).toMatch(
      /\[█*·*\] +\d+ % {3}1 b001 write \{"path":"x\.txt".*kept 0, relocated 0, computed [\d,]+; 0\.0 s\)\n/,
    );
    expect(shown).toMatch(
      / compacted b001…b002 into b004 \(ctx-0001\): −[\d,]+ tokens, recomputed [\d,]+, 0\.0 s\n/,
    );
    expect(shown).toContain("\nIt has 60 lines.\n");
    expect(shown).toMatch(/answered: 5 turns, 1 compactions, 0 expands; peak input [\d,]+ tokens/);
  });

  test("as JSON is one object per line, the report last", async () => {
    await run("Count.", flags({ json: true }), config, scripted(worker));
    const events = shown
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(events[0]).toMatchObject({ type: "run-started", id: "run-1", harness: "pca", window: 32_768 });
    expect(events.at(-1)).toMatchObject({
      type: "report",
      outcome: "answered",
      compactions: [{ tag: "ctx-0001" }],
    });
    const returned = events.filter(({ type }) => type === "tool-returned").map(({ text }) => text);
    expect(returned[2]).toBe("60");
  });

  test("that is interrupted prints how to resume, and can be resumed", async () => {
    const first: Script = (request, turn) => {
      // As Ctrl-C does.
      if (turn === 1) process.emit("SIGINT");
      request.signal!.throwIfAborted();
      return { text: "I list.", calls: call("list", {}) };
    };
    await run("Go.", flags(), config, scripted(first));
    expect(process.exitCode).toBe(130);
    process.exitCode = undefined;
    expect(shown).toMatch(/stopped: The run 'run-1' was interrupted[\s\S]*pocket runs resume run-1\n$/);
    expect(process.listenerCount("SIGINT")).toBe(0);
    expect(lines((print) => listRuns(config, false, print))[0]).toMatch(/^run-1 .* pca {2}stopped, 1 turns/);

    shown = "";
    await resume("run-1", undefined, {}, config, scripted([{ text: "Done." }]));
    expect(shown).toMatch(/answered: 2 turns/);
    await expect(resume("run-1", undefined, {}, config, scripted([]))).rejects.toMatchObject({
      code: "RUN_ANSWERED",
    });
    await expect(resume("none", undefined, {}, config, scripted([]))).rejects.toMatchObject({
      code: "RUN_NOT_FOUND",
    });
  });

  test.each([
    [{ harness: "none" }, "--harness is pca or react"],
    [{ maxTurns: "many" }, "--max-turns"],
    [{ nudge: "2" }, "--nudge is a part of the window"],
    [{ force: true }, "--force needs --nudge"],
    [{ tools: ["read", "telepathy"] }, "There is no tool 'telepathy' for this run; there are: read, list"],
    [{ window: "200k" }, "--window 200k is more than the 100000 tokens"],
    [{ window: "big" }, "--window is a number of tokens"],
    [{ workspace: "/none" }, "The workspace /none is not there"],
  ] as const)("with %j is refused", async (more, sentence) => {
    await expect(run("Go.", flags(more), config, scripted([]))).rejects.toThrow(sentence);
  });
});

test("show, export, check and replay tell of a run", async () => {
  await run("Count.", flags(), config, scripted(worker));
  const table = lines((print) => showRun("run-1", config, false, print));
  expect(table.filter((line) => /^ +\d+ /.test(line))).toHaveLength(5);
  expect(table.at(-1)).toBe("answered: It has 60 lines.");
  expect(JSON.parse(lines((print) => showRun("run-1", config, true, print))[0]!)).toMatchObject({
    id: "run-1",
  });
  expect(lines((print) => checkRuns(undefined, config, print))[0]).toMatch(
    /^nothing is wrong with the 1 runs/,
  );
  expect(() => checkRuns("none", config, () => {})).toThrow("There is no run 'none'");
  expect(() => showRun("none", config, false, () => {})).toThrow("There is no run 'none'");

  const file = join(folder, "run.jsonl");
  writeFileSync(file, lines((print) => exportOne("run-1", config, print)).join("\n"));
  const out: string[] = [];
  await replayFile(file, undefined, false, (line) => out.push(line));
  expect(out[1]).toMatch(/^react +4 +0 /);
  expect(out[2]).toMatch(/^pca +5 +1 /);
  await expect(replayFile(join(folder, "none"), undefined, false, () => {})).rejects.toThrow(
    "cannot be read",
  );
});

test("windows are said in tokens or thousands of them", () => {
  expect(["8192", "8k", "32K", "1.5k"].map(parseTokens)).toEqual([8192, 8192, 32_768, 1536]);
  expect(() => parseTokens("100")).toThrow("from 512");
});

test("runs on this server over HTTP, with a compaction", async () => {
  const server = await startTinyServer();
  try {
    const baseUrl = `http://127.0.0.1:${server.port}/v1`;
    const place = { screen, openRuntime: () => openRemoteRuntime("tiny", baseUrl) };
    // Its name is that of the tiny model's folder. The random model never answers to the point: it babbles to the end of its turns.
    await run("Say something.", flags({ baseUrl, window: "2k", maxTurns: "2", json: true }), config, place);
    const events = shown
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line));
    expect(events.at(-1).type).toBe("report");
    expect(events.at(-1).tally.agent.promptTokens).toBeGreaterThan(100);
    expect(events.find(({ type }) => type === "answer-finished").finish.bill.reason).toBeTruthy();
  } finally {
    await server.close();
  }
});

test("the command line has the verbs", async () => {
  const main = join(packageRoot(), "src", "main.ts");
  const pocket = (...given: string[]) =>
    promisify(execFile)(join(packageRoot(), "node_modules", ".bin", "tsx"), [main, ...given]);
  const { stdout } = await pocket("runs", "ls", "--agent-runs", join(folder, "runs.sqlite"));
  expect(stdout).toMatch(/^no runs yet in /);
  const refused = await pocket("runs", "show", "x", "--agent-runs", join(folder, "runs.sqlite")).catch(
    (cause) => cause,
  );
  expect(refused.code).toBe(1);
  expect(refused.stderr).toMatch(/^pocket: There is no run 'x' in .* See pocket runs ls\.\n$/);
});
