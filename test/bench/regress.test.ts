// scripts/regress from end to end on the tiny model: two equal commits, one round, the addon that is built here. It
// counts that rows come out and that nothing stays behind; no timing is looked at.
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { packageRoot } from "../../src/cli/package-root.ts";
import { ensureTinyModel } from "../support/tiny-model.ts";

const root = packageRoot();
const git = (...words: string[]) => spawnSync("git", words, { cwd: root, encoding: "utf8" });
const addon = join(root, "build/addon/Release/pocket.node");
const committed = git("cat-file", "-e", "HEAD:bench/regress/regress.ts").status === 0;
const missing = !committed
  ? "this is no checkout with bench/regress/ committed"
  : existsSync(addon)
    ? undefined
    : "the addon is not built";
const title = "two equal commits are compared row by row and leave no worktree";

test.skipIf(missing)(
  missing ? `${title} (skipped: ${missing})` : title,
  async () => {
    const models = mkdtempSync(join(tmpdir(), "pocket-regress-models-"));
    try {
      await ensureTinyModel(models, { id: "tiny", weights: "exact" });
      const before = git("worktree", "list").stdout;
      const printed = execFileSync(
        join(root, "scripts/regress"),
        [
          ...["HEAD", "HEAD", "--rounds", "1", "--addon", addon],
          ...["--bench", "engine --model tiny --depths 0 --repeat 1 --no-bandwidth --rows tg32"],
        ],
        { encoding: "utf8", stdio: "pipe", env: { ...process.env, POCKET_CACHE: models } },
      );
      const rows = printed.split("\n").filter((line) => line.includes("tokens/s"));
      expect(rows.map((row) => /· (tg32[^·]*) ·/.exec(row)?.[1])).toEqual(["tg32 @ d0", "tg32 x8 @ d0"]);
      for (const row of rows)
        expect(row).toMatch(/\| \d+\.\d{3} \| \d+\.\d{3} … \d+\.\d{3} \| 1 \| too few rounds \|$/);
      expect(git("worktree", "list").stdout).toBe(before);
    } finally {
      rmSync(models, { recursive: true });
    }
  },
  120_000,
);
