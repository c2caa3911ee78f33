// Checks out and builds a commit in a temporary worktree while it is measured. Packages are shared with the
// repository where the lockfile is the same; the addon is built once per state of native/ and kept under
// build/regress/, so a second comparison starts at once.
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";

/** Remove it. */
export class Tree {
  private constructor(
    readonly folder: string,
    /** Short hash. */
    readonly commit: string,
    private readonly root: string,
  ) {}

  /** `addon`: a built one to be used as it is. Throws, and leaves nothing, when the commit does not build. */
  static checkOut(root: string, revision: string, addon?: string): Tree {
    const commit = git(root, "rev-parse", "--short", `${revision}^{commit}`);
    const folder = mkdtempSync(join(tmpdir(), `pocket-regress-${commit}-`));
    const tree = new Tree(folder, commit, root);
    try {
      git(root, "worktree", "add", "--quiet", "--detach", "--force", folder, commit);
      tree.#installPackages();
      tree.#placeAddon(addon);
      return tree;
    } catch (cause) {
      tree.remove();
      throw cause;
    }
  }

  /** Safe to repeat. */
  remove(): void {
    rmSync(this.folder, { recursive: true, force: true });
    git(this.root, "worktree", "prune");
  }

  #installPackages(): void {
    const lock = (folder: string) => readFileSync(join(folder, "package-lock.json"), "utf8");
    if (lock(this.folder) === lock(this.root)) {
      symlinkSync(join(this.root, "node_modules"), join(this.folder, "node_modules"));
      return;
    }
    say(`${this.commit} has a lockfile of its own: npm ci, from npm's cache where it can`);
    run(this.folder, "npm", "ci", "--ignore-scripts", "--prefer-offline", "--no-audit", "--no-fund");
    run(this.folder, "npm", "rebuild", "better-sqlite3", "--ignore-scripts=false");
  }

  #placeAddon(addon: string | undefined): void {
    const target = join(this.folder, "build/addon/Release/pocket.node");
    mkdirSync(join(this.folder, "build/addon/Release"), { recursive: true });
    const kept = addon ?? join(this.root, "build/regress", this.#nativeState(), "pocket.node");
    if (!existsSync(kept)) {
      if (addon !== undefined) throw new Error(`There is no addon ${addon}.`);
      say(`building the addon of ${this.commit} (about a minute)`);
      const jobs = String(availableParallelism());
      run(this.folder, "npx", "cmake-js", "compile", "--out", "build/addon", "--parallel", jobs);
      mkdirSync(join(kept, ".."), { recursive: true });
      copyFileSync(target, kept);
      return;
    }
    copyFileSync(kept, target);
  }

  /** Digest of all that the addon is made from. */
  #nativeState(): string {
    const parts = ["native", "CMakeLists.txt", "package-lock.json"];
    const hashes = parts.map((part) => git(this.root, "rev-parse", `${this.commit}:${part}`));
    return createHash("sha256").update(hashes.join(" ")).digest("hex").slice(0, 16);
  }
}

export function say(sentence: string): void {
  process.stderr.write(`regress: ${sentence}\n`);
}

function git(folder: string, ...words: string[]): string {
  return execFileSync("git", words, { cwd: folder, encoding: "utf8" }).trim();
}

/** What it prints is shown only when it fails. */
function run(folder: string, file: string, ...words: string[]): void {
  try {
    execFileSync(file, words, { cwd: folder, stdio: "pipe" });
  } catch (cause) {
    const { stdout, stderr } = cause as { stdout?: Buffer; stderr?: Buffer };
    throw new Error(`${file} ${words.join(" ")} failed:\n${stdout ?? ""}${stderr ?? ""}`, { cause });
  }
}
