// The tools of the workspace: what they return and refuse, and that no path leads out of the folder.
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { runTool } from "../../src/harness/tool.ts";
import { editTool, readTool, writeTool } from "../../src/harness/tools/files.ts";
import { listTool } from "../../src/harness/tools/list.ts";
import { installed } from "../../src/harness/tools/sandbox.ts";
import { searchTool } from "../../src/harness/tools/search.ts";
import { openToolset, resultCharacters } from "../../src/harness/tools/toolset.ts";
import { Workspace } from "../../src/harness/tools/workspace.ts";

let outside: string;
let folder: string;
let workspace: Workspace;
beforeEach(() => {
  outside = mkdtempSync(join(tmpdir(), "pocket-outside-"));
  folder = join(outside, "work");
  mkdirSync(join(folder, "src"), { recursive: true });
  writeFileSync(join(outside, "secret.txt"), "the secret\n");
  writeFileSync(join(folder, "a.txt"), "one\ntwo\nthree\n");
  writeFileSync(join(folder, "src", "b.py"), "def total(x):\n    return x\n\ntotal(2)\n");
  workspace = new Workspace(folder);
});
afterEach(() => rmSync(outside, { recursive: true }));

const tools = (maxCharacters = 4000) => [
  readTool(workspace, maxCharacters),
  listTool(workspace, maxCharacters),
  searchTool(workspace, { maxCharacters: maxCharacters, ripgrep: null, limitMs: 1000 }),
  editTool(workspace),
  writeTool(workspace),
];
const use = (name: string, given: object | string, maxCharacters?: number) => {
  const json = typeof given === "string" ? given : JSON.stringify(given);
  return runTool(tools(maxCharacters), { id: "1", name, arguments: json }, new AbortController().signal);
};

describe("the workspace", () => {
  beforeEach(() => {
    symlinkSync(outside, join(folder, "up"));
    symlinkSync(join(outside, "secret.txt"), join(folder, "secret"));
    symlinkSync(join(outside, "made-later.txt"), join(folder, "dangling"));
    symlinkSync("loop", join(folder, "loop"));
    symlinkSync("src", join(folder, "inside"));
  });

  const ways = [
    "../secret.txt",
    "src/../../secret.txt",
    "up/secret.txt",
    "secret",
    "up/new.txt",
    "dangling",
    "/etc/passwd",
    "loop",
    "up/x/y/z.txt",
  ];
  test.each(ways)("neither reads nor writes %s", async (path) => {
    for (const text of [
      await use("read", { path }),
      await use("write", { path, content: "x" }),
      await use("edit", { path, old: "the", new: "no" }),
      await use("list", { path }),
      await use("search", { pattern: "secret", path }),
    ]) {
      expect(text).toMatch(/outside of the workspace|symbolic link/);
    }
    expect(readFileSync(join(outside, "secret.txt"), "utf8")).toBe("the secret\n");
    expect(["new.txt", "made-later.txt", "x"].filter((name) => existsSync(join(outside, name)))).toEqual([]);
  });

  test("follows links that stay inside, and lists others without following them", async () => {
    expect(await use("read", { path: "inside/b.py" })).toContain("def total");
    expect(await use("list", { depth: 3 })).toMatch(/^up \(link\)$/m);
    expect(await use("search", { pattern: "secret" })).toBe("Nothing in . matches secret.");
  });

  test("no combination of path parts leads out", () => {
    const part = fc.constantFrom("..", ".", "src", "up", "inside", "secret", "a.txt", "", "/", "new");
    fc.assert(
      fc.property(fc.array(part, { maxLength: 8 }), fc.boolean(), (parts, absolute) => {
        const path = (absolute ? `${folder}/` : "") + parts.join("/");
        try {
          const real = workspace.locate(path);
          expect(real === workspace.root || real.startsWith(`${workspace.root}/`)).toBe(true);
        } catch (cause) {
          expect((cause as Error).message).toMatch(/outside of the workspace|symbolic links?/);
        }
      }),
      { numRuns: 300 },
    );
  });

  test("a workspace that is not a folder is refused", () => {
    expect(() => new Workspace(join(folder, "none"))).toThrow("is not there");
    expect(() => new Workspace(join(folder, "a.txt"))).toThrow("is not a folder");
  });
});

describe("read", () => {
  test("numbers the lines and begins at the given line", async () => {
    expect(await use("read", { path: "a.txt" })).toBe("1\tone\n2\ttwo\n3\tthree");
    expect(await use("read", { path: "a.txt", start: "2" })).toBe(
      "2\ttwo\n3\tthree\n(lines 2 to 3 of 3 in a.txt)",
    );
  });

  test("lists the files of a folder by the paths that it takes", async () => {
    mkdirSync(join(folder, "many"));
    for (let number = 10; number < 35; number++) writeFileSync(join(folder, `many/${number}.txt`), "x");
    const text = await use("read", { path: "many/" });
    expect(text).toContain("by its whole path: many/10.txt, many/11.txt,");
    expect(text).toContain("many/29.txt, and 5 more.");
  });

  test("consecutive parts have every line once", async () => {
    const lines = Array.from({ length: 500 }, (_, index) => `line ${index} ${"x".repeat(index % 90)}`);
    writeFileSync(join(folder, "long.txt"), lines.join("\n"));
    const seen: string[] = [];
    for (let start: number | undefined = 1; start; ) {
      const text = await use("read", { path: "long.txt", start }, 1000);
      expect(text.length).toBeLessThan(1200);
      seen.push(...[...text.matchAll(/^\d+\t(.*)$/gm)].map(([, line]) => line!));
      start = Number(/go on with start (\d+)/.exec(text)?.[1]) || undefined;
    }
    expect(seen).toEqual(lines);
  });

  test.each([
    [{ path: "none.txt" }, "There is no 'none.txt' in the workspace. Use list"],
    [{ path: "src" }, "'src' is a folder"],
    [{ path: "a.txt", start: 9 }, "a.txt has 3 lines; there is none at 9"],
    [{ path: "a.txt", start: 0 }, "There is no line 0"],
    [{ path: 3 }, "path must be text: {path, start?}"],
    [{ file: "a.txt" }, "There is no argument file"],
    [{}, "path is missing"],
    ["{path", "are not JSON"],
  ])("refuses %j with a sentence", async (given, sentence) => {
    expect(await use("read", given)).toContain(sentence);
  });

  test("refuses a binary file", async () => {
    writeFileSync(join(folder, "x.bin"), Buffer.from([1, 0, 2]));
    expect(await use("read", { path: "x.bin" })).toBe("x.bin is not a text file.");
  });
});

describe("edit and write", () => {
  test("edit replaces the only occurrence literally and keeps the mode of the file", async () => {
    writeFileSync(join(folder, "run.sh"), "#!/bin/sh\necho a\n", { mode: 0o755 });
    expect(await use("edit", { path: "run.sh", old: "echo a", new: "echo $& $1" })).toBe(
      "Edited run.sh at line 2.",
    );
    expect(readFileSync(join(folder, "run.sh"), "utf8")).toBe("#!/bin/sh\necho $& $1\n");
    expect(statSync(join(folder, "run.sh")).mode & 0o777).toBe(0o755);
  });

  test.each([
    ["four", "old does not occur in a.txt; nothing was changed"],
    ["o", "old occurs 2 times in a.txt (lines 1, 2); nothing was changed"],
    ["", "old is empty"],
  ])("edit refuses %j and changes nothing", async (old, sentence) => {
    expect(await use("edit", { path: "a.txt", old, new: "x" })).toContain(sentence);
    expect(readFileSync(join(folder, "a.txt"), "utf8")).toBe("one\ntwo\nthree\n");
  });

  test("overlapping occurrences count as two", async () => {
    writeFileSync(join(folder, "c.txt"), "aaa");
    expect(await use("edit", { path: "c.txt", old: "aa", new: "b" })).toContain("occurs 2 times");
  });

  test("write makes folders, replaces files and leaves no temporary file", async () => {
    expect(await use("write", { path: "new/deep/x.txt", content: "a\nb\n" })).toBe(
      "Wrote new/deep/x.txt: 2 lines.",
    );
    expect(await use("write", { path: "new/deep/x.txt", content: "c" })).toBe(
      "Replaced new/deep/x.txt: 1 lines.",
    );
    expect(await use("list", { path: "new", depth: 2 })).toBe("deep/\n  x.txt 1 bytes");
    expect(await use("write", { path: "a.txt/b", content: "c" })).toMatch(
      /a part of the path is a file|outside/,
    );
    expect(await use("write", { path: "src", content: "c" })).toContain("is a folder");
  });
});

describe("search", () => {
  test("returns path, line and text of every match", async () => {
    expect(await use("search", { pattern: "tot.l\\(" })).toBe(
      "src/b.py:1: def total(x):\nsrc/b.py:4: total(2)",
    );
    expect(await use("search", { pattern: "^t", path: "a.txt" })).toBe("a.txt:2: two\na.txt:3: three");
  });

  test("refuses an invalid expression, and stops one that never ends", async () => {
    expect(await use("search", { pattern: "(" })).toContain("no regular expression");
    writeFileSync(join(folder, "evil.txt"), `${"a".repeat(40)}!`);
    expect(await use("search", { pattern: "^(a+)+$" })).toContain("took longer than");
  }, 20_000);

  test("is cut at its maximum size, and says so", async () => {
    writeFileSync(join(folder, "many.txt"), "match\n".repeat(2000));
    const text = await use("search", { pattern: "match" }, 500);
    expect(text.length).toBeLessThan(700);
    expect(text).toContain("more matches");
  });

  const ripgrep = installed("rg");
  test.skipIf(ripgrep === null)(
    ripgrep ? "ripgrep gives the same rows" : "ripgrep gives the same rows (skipped: rg is not installed)",
    async () => {
      for (const given of [{ pattern: "tot.l\\(" }, { pattern: "^t", path: "a.txt" }, { pattern: "none" }]) {
        const call = { id: "1", name: "search", arguments: JSON.stringify(given) };
        const by = searchTool(workspace, { maxCharacters: 4000, ripgrep });
        expect(await runTool([by], call, new AbortController().signal)).toBe(await use("search", given));
      }
    },
  );
});

test("results are a fraction of the window", () => {
  expect([2048, 8192, 32_768, 131_072].map(resultCharacters)).toEqual([1024, 4096, 16_000, 16_000]);
  const toolset = openToolset({ workspace: folder, window: 8192 });
  expect(toolset.tools.map(({ spec }) => spec.name)).toEqual([
    "read",
    "list",
    "search",
    "edit",
    "write",
    "shell",
  ]);
  toolset.close();
});
