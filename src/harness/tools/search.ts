// The tool `search`: a regular expression over the files of the workspace, by ripgrep if it is installed,
// otherwise by a walk in this process with results of the same form. The walk ignores .gitignore and runs the
// expression under a time limit, because a model may write one with exponential backtracking.
import { execFile } from "node:child_process";
import { statSync } from "node:fs";
import { createContext, Script } from "node:vm";
import type { AgentTool } from "../tool.ts";
import { readText } from "./files.ts";
import { filesUnder } from "./list.ts";
import { installed } from "./sandbox.ts";
import { agentTool, Refused } from "./tool-arguments.ts";
import type { Workspace } from "./workspace.ts";

export interface SearchOptions {
  /** Characters of one result. */
  readonly maxCharacters: number;
  /** Path of ripgrep; null: use the walk. Default: ripgrep if it is on the PATH. */
  readonly ripgrep?: string | null;
  /** Milliseconds that one search may take. Default: 10,000. */
  readonly limitMs?: number;
}

/** Characters of one line of the result. */
const maxLineLength = 240;

export function searchTool(workspace: Workspace, options: SearchOptions): AgentTool {
  const { maxCharacters, ripgrep = installed("rg"), limitMs = 10_000 } = options;
  return agentTool(
    {
      name: "search",
      description: "Search the files of the workspace with a regular expression. Gives path:line: text.",
      fields: {
        pattern: { type: "string", description: "A regular expression, such as def \\w+_total" },
        path: { type: "string", description: "File or folder to search in; default: all", optional: true },
      },
    },
    async ({ pattern, path = "." }, signal) => {
      if (pattern === "") throw new Refused("The pattern is empty.");
      const root = workspace.find(path);
      const rows = ripgrep
        ? await byRipgrep(ripgrep, workspace, { pattern, root, limitMs, signal })
        : byWalk(workspace, matcher(pattern, limitMs), root, maxCharacters);
      return rows.length === 0 ? `Nothing in ${path} matches ${pattern}.` : capped(rows, maxCharacters);
    },
  );
}

interface Search {
  readonly pattern: string;
  /** Absolute: a file or a folder. */
  readonly root: string;
  readonly limitMs: number;
  readonly signal: AbortSignal;
}

/** Rows in the order of the walk. */
function byRipgrep(ripgrep: string, workspace: Workspace, search: Search): Promise<string[]> {
  const { pattern, root, limitMs, signal } = search;
  const flags = ["--no-config", "--no-heading", "--with-filename", "--line-number", "--color=never"];
  const order = ["--sort=path", `--max-columns=${maxLineLength}`, "--max-columns-preview"];
  const asked = ["--regexp", pattern, "--", workspace.name(root)];
  const options = { cwd: workspace.root, timeout: limitMs, signal, maxBuffer: 32 * 1024 * 1024 };
  return new Promise((resolve, reject) => {
    execFile(ripgrep, [...flags, ...order, ...asked], options, (error, stdout, stderr) => {
      // Exit status 1: no match. 2 with output: some files could not be read.
      if (!error || error.code === 1 || (error.code === 2 && stdout !== "")) {
        const rows = stdout.split("\n").filter((row) => row !== "");
        resolve(rows.map((row) => row.replace(/^\.\//, "").replace(/^(.*?:\d+):/, "$1: ")));
      } else if (signal.aborted) reject(signal.reason);
      else if (error.killed) reject(new Refused("The search took too long; search in a smaller part."));
      else reject(new Refused(`The search failed: ${stderr.trim() || error.message}`));
    });
  });
}

/** Indices of the matching lines. */
type Matcher = (lines: readonly string[]) => readonly number[];

function byWalk(workspace: Workspace, matches: Matcher, root: string, maxCharacters: number): string[] {
  const rows: string[] = [];
  let length = 0;
  for (const file of statSync(root).isDirectory() ? filesUnder(root) : [root]) {
    const lines = textLines(file);
    for (const index of matches(lines)) {
      const row = `${workspace.name(file)}:${index + 1}: ${lines[index]!.slice(0, maxLineLength)}`;
      rows.push(row);
      length += row.length + 1;
    }
    if (length > maxCharacters) break;
  }
  return rows;
}

/** `limitMs`: for all calls of the matcher together; it then throws Refused. */
function matcher(pattern: string, limitMs: number): Matcher {
  let expression: RegExp;
  try {
    expression = new RegExp(pattern, "u");
  } catch {
    // Without the u flag, needless backslashes are allowed, as in other engines.
    try {
      expression = new RegExp(pattern);
    } catch (cause) {
      throw new Refused(`The pattern is no regular expression: ${(cause as Error).message}`);
    }
  }
  const scope = createContext({ expression, lines: [] as readonly string[] });
  const script = new Script("lines.flatMap((line, index) => (expression.test(line) ? [index] : []))");
  const endMs = performance.now() + limitMs;
  return (lines) => {
    scope.lines = lines;
    const timeout = Math.max(1, Math.ceil(endMs - performance.now()));
    try {
      return script.runInContext(scope, { timeout });
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code !== "ERR_SCRIPT_EXECUTION_TIMEOUT") throw cause;
      throw new Refused(
        `The search took longer than ${limitMs / 1000} s; use a simpler pattern or a smaller part.`,
      );
    }
  };
}

/** No lines for a file that is not text or cannot be read. */
function textLines(file: string): string[] {
  try {
    return readText(file, file).split(/\r?\n/);
  } catch {
    return [];
  }
}

function capped(rows: readonly string[], maxCharacters: number): string {
  const shown: string[] = [];
  let left = maxCharacters;
  for (const row of rows) {
    left -= row.length + 1;
    if (left < 0 && shown.length > 0) {
      return `${shown.join("\n")}\n… more matches; search in a smaller part or with a narrower pattern.`;
    }
    shown.push(row);
  }
  return shown.join("\n");
}
