// Checks the tree of files: who imports whom, cycles, sizes of files and folders, first comments.
import { readdirSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { type Import, importsOf, includesOf, objection } from "./arrows.ts";
import { cyclesOf, filesUnder, native, read, root, typescript } from "./tree.ts";

describe("imports", () => {
  test("are those that the table of arrows.ts allows", () => {
    const imports = typescript.flatMap((path) => importsOf(path, read(path)));
    expect(imports.length).toBeGreaterThan(100);
    expect(imports.map(objection).filter((sentence) => sentence !== null)).toEqual([]);
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
  ])("of other kinds are rejected: %s with %j", (path, text, complaint) => {
    expect(importsOf(path, text).map(objection)).toEqual([expect.stringContaining(complaint)]);
  });

  test("of the allowed kinds pass", () => {
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

describe("import cycles", () => {
  const graphOf = (paths: readonly string[], edges: (path: string, text: string) => Import[]) =>
    new Map(paths.map((path) => [path, edges(path, read(path)).map(({ to }) => to)]));

  test("are found", () => {
    const graph = new Map([
      ["a", ["b"]],
      ["b", ["c", "d"]],
      ["c", ["a"]],
      ["d", ["d"]],
    ]);
    expect(cyclesOf(graph)).toEqual([
      ["a", "b", "c", "a"],
      ["d", "d"],
    ]);
  });

  test("do not exist in src/ and models/, type imports included", () => {
    const product = typescript.filter((path) => /^(src|models)\//.test(path));
    expect(cyclesOf(graphOf(product, importsOf))).toEqual([]);
  });

  test("do not exist in native/, neither between files nor between folders", () => {
    const files = graphOf(native, includesOf);
    expect(cyclesOf(files)).toEqual([]);
    const folderOf = (path: string) => /^native\/([^/]+)\//.exec(path)?.[1];
    const folders = new Map<string, string[]>();
    for (const [path, included] of files) {
      const [from, to] = [folderOf(path), included.map(folderOf)];
      if (from === undefined) continue;
      const others = to.filter((folder) => folder !== undefined && folder !== from) as string[];
      folders.set(from, [...new Set([...(folders.get(from) ?? []), ...others])]);
    }
    expect(cyclesOf(folders)).toEqual([]);
  });
});

describe("native/", () => {
  const includes = new Map(native.map((path) => [path, includesOf(path, read(path))]));

  /** All files that a file includes, directly or through headers. */
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

  test("includes N-API in addon/ only", () => {
    const rest = native.filter((path) => !/^native\/addon\//.test(path));
    const offenders = rest.flatMap((path) =>
      [...reach(path)].filter((to) => /^(napi|node_api|js_native_api|uv)\b/.test(to)),
    );
    expect(offenders).toEqual([]);
  });

  test("includes ONNX Runtime in runtime/ and addon/ only", () => {
    expect(seenBy(/^native\/(cache|sampler|kv|attention|linear|cpu)\//, /ort_api|onnxruntime/)).toEqual([]);
  });

  test("includes its own headers by their path in native/, and only those by quotes", () => {
    const missing = [...includes.values()]
      .flat()
      .filter(({ to }) => to.startsWith("native/") && !native.includes(to));
    expect(missing.map((arrow: Import) => `${arrow.from} includes ${arrow.to}`)).toEqual([]);
  });

  test("sees a forbidden header through another one", () => {
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

test("every source file begins with a comment that says what it is for", () => {
  // The header of the same name has the comment of a .cpp.
  const commented = native.filter(
    (path) => !native.includes(path.replace(/\.cpp$/, ".h")) || path.endsWith(".h"),
  );
  const sources = [...typescript.filter((path) => /^(src|models)\//.test(path)), ...commented];
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
