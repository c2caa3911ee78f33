// The plan held against the tree: who imports whom, how long a file may be, what stands at the top.
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { type Import, importsOf, includesOf, objection } from "./arrows.ts";

const root = fileURLToPath(new URL("../..", import.meta.url));

function filesUnder(folder: string, ending: RegExp): string[] {
  return readdirSync(`${root}/${folder}`, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && ending.test(entry.name))
    .map((entry) => `${entry.parentPath}/${entry.name}`.slice(root.length).replace(/^\/+/, ""))
    .filter((path) => !path.includes("node_modules/"))
    .sort();
}

const read = (path: string) => readFileSync(`${root}/${path}`, "utf8");
const typescript = ["src", "models", "bench", "scripts", "test"].flatMap((folder) =>
  filesUnder(folder, /\.ts$/),
);
const native = filesUnder("native", /\.(h|cpp|cu|cuh)$/);

describe("the stairs", () => {
  test("have no arrow that the table does not have", () => {
    const arrows = typescript.flatMap((path) => importsOf(path, read(path)));
    expect(arrows.length).toBeGreaterThan(100);
    expect(arrows.map(objection).filter((sentence) => sentence !== null)).toEqual([]);
  });

  test.each([
    ["src/chat/chat.ts", 'import { x } from "../session/chat.ts";', "src/session"],
    ["src/engine/scheduler.ts", 'export { x } from "../text/stop.ts";', "src/text"],
    ["src/server/app.ts", 'const x = await import("../engine/engine.ts");', "src/engine"],
    ["src/session/local-chat.ts", 'import { x } from "../context/history.ts";', "src/context"],
    ["src/chat/chat.ts", 'import { x } from "../errors.ts";', "src/errors"],
    ["src/text/stop-strings.ts", 'import type {\n  X,\n} from "../context/history.ts";', "src/context"],
    ["src/harness/loop.ts", 'import fastify from "fastify";', "fastify"],
    ["models/readers/gguf.ts", 'import { Config } from "../../src/config/config.ts";', "src/config"],
    ["src/errors.ts", 'import "./config/config.ts";', "src/config"],
    ["src/helpers/x.ts", 'import "node:fs";', "no room"],
  ])("would not stand %s saying %j", (path, text, complaint) => {
    expect(importsOf(path, text).map(objection)).toEqual([expect.stringContaining(complaint)]);
  });

  test("let what they allow pass", () => {
    const allowed = [
      importsOf("src/session/local-chat.ts", 'import type { Chat } from "../chat/chat.ts";'),
      importsOf("src/cli/serve.ts", 'import { x } from "../../models/manifest.ts";'),
      importsOf("src/text/stop-strings.ts", '// import { x } from "../engine/job.ts";'),
    ];
    expect(
      allowed
        .flat()
        .map(objection)
        .every((sentence) => sentence === null),
    ).toBe(true);
  });
});

describe("native/", () => {
  const includes = new Map(native.map((path) => [path, includesOf(path, read(path))]));

  /** Everything a file sees, through however many headers. */
  function reach(path: string, seen = new Set<string>()): Set<string> {
    for (const { to } of includes.get(path) ?? []) {
      if (seen.has(to)) continue;
      seen.add(to);
      reach(to, seen);
    }
    return seen;
  }

  const seenBy = (names: RegExp, headers: RegExp) =>
    native
      .filter((path) => names.test(path))
      .flatMap((path) => [...reach(path)].filter((to) => headers.test(to)).map((to) => `${path} sees ${to}`));

  test("knows N-API in the addon's files only", () => {
    const rest = native.filter((path) => !/^native\/addon\//.test(path));
    const offenders = rest.flatMap((path) =>
      [...reach(path)].filter((to) => /^(napi|node_api|js_native_api|uv)\b/.test(to)),
    );
    expect(offenders).toEqual([]);
  });

  test("keeps ONNX Runtime out of everything below runtime/", () => {
    expect(seenBy(/^native\/(cache|sampler|kv|attention|linear|cpu)\//, /ort_api|onnxruntime/)).toEqual([]);
  });

  test("includes by quotes only its own headers, by their path below native/", () => {
    const missing = [...includes.values()]
      .flat()
      .filter(({ to }) => to.startsWith("native/") && !native.includes(to));
    expect(missing.map((arrow: Import) => `${arrow.from} includes ${arrow.to}`)).toEqual([]);
  });

  test("would notice a forbidden header through another one", () => {
    includes.set("native/made_up.h", includesOf("native/made_up.h", '#include "runtime/ort_api.h"\n'));
    includes.set("native/made_up.cpp", includesOf("native/made_up.cpp", '#include "made_up.h"\n'));
    expect(reach("native/made_up.cpp").has("native/runtime/ort_api.h")).toBe(true);
  });
});

describe("lines per file", () => {
  const maxLines = 400;
  const maxTestLines = 500;
  const linesOf = (path: string) => read(path).split("\n").length - 1;
  const maxOf = (path: string) => (path.startsWith("test/") ? maxTestLines : maxLines);
  /** The first comment, which has to say why a file is longer than the others. */
  const firstComment = (path: string) => /^(#!.*\n)?((\/\/.*\n)*)/.exec(read(path))![2]!;

  test("are 400 for sources and 500 for tests, or the first comment says why the file is longer", () => {
    const long = [...typescript, ...native].filter((path) => linesOf(path) > maxOf(path));
    expect(long.filter((path) => !/Over (400|500) lines because /.test(firstComment(path)))).toEqual([]);
  });
});

test("no folder has more than 25 files of code", () => {
  const folders = new Map<string, number>();
  for (const path of [...typescript, ...native]) {
    const folder = path.slice(0, path.lastIndexOf("/"));
    folders.set(folder, (folders.get(folder) ?? 0) + 1);
  }
  expect([...folders].filter(([, count]) => count > 25)).toEqual([]);
});

test("every source file opens with what it is for", () => {
  // A .cpp beside a header of its name is introduced by the header.
  const introduced = native.filter(
    (path) => !native.includes(path.replace(/\.cpp$/, ".h")) || path.endsWith(".h"),
  );
  const sources = [...typescript.filter((path) => /^(src|models)\//.test(path)), ...introduced];
  expect(sources.filter((path) => !/^(#!.*\n)?\/\/ /.test(read(path)))).toEqual([]);
});

test("the top level has no grab bag and no weights", () => {
  const forbidden =
    /^(utils?|helpers?|common|misc|lib|tmp|temp|old|vendor|third_party)$|\.(gguf|onnx|bin|safetensors)$/;
  expect(readdirSync(root).filter((name) => forbidden.test(name))).toEqual([]);
});

test("no file names a path of the machine it was written on", () => {
  const machine = new RegExp(["/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/[a-z]+/"].join("|"));
  const texts = [...typescript, ...native, ...filesUnder("src", /\.md$/), ...filesUnder("scripts", /./)];
  expect(texts.filter((path) => machine.test(read(path)))).toEqual([]);
});
