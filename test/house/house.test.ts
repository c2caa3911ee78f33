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
    ["src/context/chat.ts", 'import { x } from "../session/chat.ts";', "src/session"],
    ["src/engine/plan.ts", 'export { x } from "../text/stop.ts";', "src/text"],
    ["src/server/app.ts", 'const x = await import("../engine/engine.ts");', "src/engine"],
    ["src/session/chat.ts", 'import { x } from "../context/chat.ts";', "more than its types"],
    ["src/text/stop.ts", 'import type {\n  X,\n} from "../context/chat.ts";', "src/context"],
    ["src/harness/loop.ts", 'import fastify from "fastify";', "fastify"],
    ["models/gguf.ts", 'import { Config } from "../src/config.ts";', "src/config"],
    ["src/errors.ts", 'import "./config.ts";', "src/config"],
    ["src/helpers/x.ts", 'import "node:fs";', "no room"],
  ])("would not stand %s saying %j", (path, text, complaint) => {
    expect(importsOf(path, text).map(objection)).toEqual([expect.stringContaining(complaint)]);
  });

  test("let what they allow pass", () => {
    const allowed = [
      importsOf("src/session/chat.ts", 'import type { Chat } from "../context/chat.ts";'),
      importsOf("src/commands/serve.ts", 'import { x } from "../../models/manifest.ts";'),
      importsOf("src/text/stop.ts", '// import { x } from "../engine/job.ts";'),
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
    const rest = native.filter((path) => !/^native\/addon(_\w+)?\.(h|cpp)$/.test(path));
    const offenders = rest.flatMap((path) =>
      [...reach(path)].filter((to) => /^(napi|node_api|js_native_api|uv)\b/.test(to)),
    );
    expect(offenders).toEqual([]);
  });

  test("keeps ONNX Runtime out of pool, sequence, cache, sampler and batch", () => {
    expect(seenBy(/^native\/(pool|sequence|cache|sampler|batch)\.(h|cpp)$/, /ort_api|onnxruntime/)).toEqual(
      [],
    );
  });

  test("includes only headers of its own folder by quotes", () => {
    const strangers = [...includes.values()]
      .flat()
      .filter(({ to }) => to.endsWith(".h") && to.includes("/") && !to.startsWith("native/"));
    const ours = strangers.filter(({ to }) => !/^(sys|immintrin|asm|linux|arpa|netinet)\//.test(to));
    expect(ours.map((arrow: Import) => `${arrow.from} includes ${arrow.to}`)).toEqual([]);
  });

  test("would notice a forbidden header through another one", () => {
    includes.set("native/made_up.h", includesOf("native/made_up.h", '#include "ort_api.h"\n'));
    includes.set("native/made_up.cpp", includesOf("native/made_up.cpp", '#include "made_up.h"\n'));
    expect(reach("native/made_up.cpp").has("native/ort_api.h")).toBe(true);
  });
});

describe("lines per file", () => {
  /** Files over the budget, with the reason; each has a ceiling of its own. */
  const exceptions: Readonly<Record<string, readonly [ceiling: number, reason: string]>> = {
    "native/addon.cpp": [450, "one wrapper for each call of the floor, and the conversions they share"],
  };
  const budget = (path: string) => exceptions[path]?.[0] ?? (path.startsWith("test/") ? 500 : 300);

  test("stay in the budget: 300 for sources, 500 for tests", () => {
    const long = [...typescript, ...native]
      .map((path) => ({ path, lines: read(path).split("\n").length - 1 }))
      .filter(({ path, lines }) => lines > budget(path));
    expect(long).toEqual([]);
  });

  test("exceed it only where an exception still needs to", () => {
    const idle = Object.keys(exceptions).filter((path) => read(path).split("\n").length - 1 <= 300);
    expect(idle).toEqual([]);
  });
});

test("every source file opens with what it is for", () => {
  // A .cpp beside a header of its name is introduced by the header.
  const introduced = native.filter(
    (path) => !native.includes(path.replace(/\.cpp$/, ".h")) || path.endsWith(".h"),
  );
  const sources = [...typescript.filter((path) => /^(src|models)\//.test(path)), ...introduced];
  expect(sources.filter((path) => !/^(#!.*\n)?\/\/ /.test(read(path)))).toEqual([]);
});

test("the top level is what the plan says", () => {
  const planned = [
    ...["src", "native", "models", "test", "bench", "scripts"],
    ...["CMakeLists.txt", "package.json", "tsconfig.json", "README.md", "LICENSE"],
  ];
  const isBuilt = (name: string) =>
    /^(node_modules|dist|build(-.*)?|package-lock\.json|.*\.(log|tsbuildinfo))$/.test(name);
  const found = readdirSync(root).filter((name) => !name.startsWith(".") && !isBuilt(name));
  expect(found.sort()).toEqual(planned.sort());
});

test("no file names a path of the machine it was written on", () => {
  const machine = new RegExp(["/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/[a-z]+/"].join("|"));
  const texts = [...typescript, ...native, ...filesUnder("src", /\.md$/), ...filesUnder("scripts", /./)];
  expect(texts.filter((path) => machine.test(read(path)))).toEqual([]);
});
