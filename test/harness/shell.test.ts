// The shell tool: time and output are limited, no process stays, no keys are passed on, and there is no
// network if the system allows that.
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { runTool } from "../../src/harness/tool.ts";
import { Excerpt, excerpt } from "../../src/harness/tools/excerpt.ts";
import { findSandbox, type SandboxKind } from "../../src/harness/tools/sandbox.ts";
import { shellTool } from "../../src/harness/tools/shell.ts";
import { Workspace } from "../../src/harness/tools/workspace.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "pocket-shell-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

const kinds = (["bubblewrap", "unshare", "none"] as const).filter(
  (kind) => findSandbox([kind]).kind === kind,
);
for (const kind of ["bubblewrap", "unshare"] as const)
  if (!kinds.includes(kind)) console.log(`shell under ${kind}: skipped, it does not work on this machine`);

describe.each(kinds)("under %s", (kind: SandboxKind) => {
  const sandbox = findSandbox([kind]);
  const shell = (command: string, timeout?: number, signal = new AbortController().signal) => {
    const tool = shellTool(new Workspace(folder), { sandbox, maxCharacters: 2000 });
    return runTool(
      [tool],
      { id: "1", name: "shell", arguments: JSON.stringify({ command, timeout }) },
      signal,
    );
  };

  test("returns stdout and stderr, and the exit status of a failure", async () => {
    expect(await shell("echo a; echo b >&2")).toMatch(/^(a\nb|b\na)$/);
    expect(await shell("echo no; exit 3")).toBe("no\n(exit status 3)");
    expect(await shell("true")).toBe("(no output, exit status 0)");
    expect(await shell("pwd")).toBe(new Workspace(folder).root);
    await shell("echo x > made.txt");
    expect(existsSync(join(folder, "made.txt"))).toBe(true);
  });

  test("keeps the beginning and the end of a long output", async () => {
    const text = await shell("seq 1 20000");
    expect(text.length).toBeLessThan(2100);
    expect(text).toMatch(/^1\n2\n[\s\S]*characters left out[\s\S]*\n20000$/);
  });

  test("ends at the time limit with all its processes", async () => {
    const startMs = performance.now();
    expect(await shell("(sleep 1.5; touch late.txt) & sleep 30", 1)).toBe(
      "(no output, ended after 1 seconds, the time limit)",
    );
    expect(performance.now() - startMs).toBeLessThan(3000);
    await sleep(700);
    expect(existsSync(join(folder, "late.txt"))).toBe(false);
  });

  test("does not wait for background processes, and ends them", async () => {
    expect(await shell("(sleep 0.8; touch orphan.txt) & echo done")).toBe("done");
    await sleep(900);
    expect(existsSync(join(folder, "orphan.txt"))).toBe(false);
  });

  test("an abort ends it", async () => {
    const controller = new AbortController();
    setTimeout(() => controller.abort(new Error("the user left")), 200);
    await expect(shell("sleep 30", 30, controller.signal)).rejects.toThrow("the user left");
  });

  test("gets no keys from the environment", async () => {
    process.env.OPENAI_API_KEY = "sk-secret";
    try {
      expect(await shell("env")).not.toContain("sk-secret");
    } finally {
      delete process.env.OPENAI_API_KEY;
    }
  });

  test.skipIf(kind === "none")(
    `has no network${kind === "none" ? " (skipped: nothing here takes it away)" : ""}`,
    async () => {
      const devices = await shell("tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '");
      expect(devices.split("\n")).toEqual(["lo"]);
    },
  );
});

test("without a sandbox there is a warning", () => {
  expect(findSandbox(["none"]).warning).toContain("can use the network");
});

test("text in pieces is cut like whole text", () => {
  fc.assert(
    fc.property(
      fc.array(fc.string({ unit: "binary", maxLength: 30 }), { maxLength: 20 }),
      fc.integer({ min: 2, max: 80 }),
      (parts, maxCharacters) => {
        const pieces = new Excerpt(maxCharacters);
        for (const part of parts) pieces.push(part);
        const whole = parts.join("");
        // With an odd limit only whole text of exactly that length is kept uncut.
        if (whole.length !== maxCharacters) expect(pieces.text).toBe(excerpt(whole, maxCharacters));
      },
    ),
  );
});
