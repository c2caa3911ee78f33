// A regular expression over the files of the workspace: by ripgrep where it is installed, else by a walk of our
// own with the same form of result. The own walk knows no .gitignore, and runs the expression under a time limit,
// since a model may write one that never ends.
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
  readonly most: number;
  /** ripgrep; null: the own walk. Default: what is on the PATH. */
  readonly ripgrep?: string | null;
  /** Milliseconds that one search may take. Default: 10,000. */
  readonly limitMs?: number;
}

/** Of one line of the result. */
const lineCharacters = 240;

export function searchTool(workspace: Workspace, options: SearchOptions): AgentTool {
  const { most, ripgrep = installed("rg"), limitMs = 10_000 } = options;
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
      const place = workspace.find(path);
      const rows = ripgrep
        ? await byRipgrep(ripgrep, workspace, { pattern, place, limitMs, signal })
        : byWalk(workspace, matcher(pattern, limitMs), place, most);
      return rows.length === 0 ? `Nothing in ${path} matches ${pattern}.` : capped(rows, most);
    },
  );
}

interface Search {
  readonly pattern: string;
  readonly place: string;
  readonly limitMs: number;
  readonly signal: AbortSignal;
}

/** Sorted as the own walk is. */
function byRipgrep(ripgrep: string, workspace: Workspace, search: Search): Promise<string[]> {
  const { pattern, place, limitMs, signal } = search;
  const flags = ["--no-config", "--no-heading", "--with-filename", "--line-number", "--color=never"];
  const order = ["--sort=path", `--max-columns=${lineCharacters}`, "--max-columns-preview"];
  const asked = ["--regexp", pattern, "--", workspace.name(place)];
  const options = { cwd: workspace.root, timeout: limitMs, signal, maxBuffer: 32 * 1024 * 1024 };
  return new Promise((resolve, reject) => {
    execFile(ripgrep, [...flags, ...order, ...asked], options, (error, stdout, stderr) => {
      // 1: no match; 2 with output: some files could not be read.
      if (!error || error.code === 1 || (error.code === 2 && stdout !== "")) {
        const rows = stdout.split("\n").filter((row) => row !== "");
        resolve(rows.map((row) => row.replace(/^\.\//, "").replace(/^(.*?:\d+):/, "$1: ")));
      } else if (signal.aborted) reject(signal.reason);
      else if (error.killed) reject(new Refused("The search took too long; search in a smaller part."));
      else reject(new Refused(`The search failed: ${stderr.trim() || error.message}`));
    });
  });
}

/** Places of the lines that match. */
type Matcher = (lines: readonly string[]) => readonly number[];

function byWalk(workspace: Workspace, matches: Matcher, place: string, most: number): string[] {
  const rows: string[] = [];
  let length = 0;
  for (const file of statSync(place).isDirectory() ? filesUnder(place) : [place]) {
    const lines = textLines(file);
    for (const place of matches(lines)) {
      const row = `${workspace.name(file)}:${place + 1}: ${lines[place]!.slice(0, lineCharacters)}`;
      rows.push(row);
      length += row.length + 1;
    }
    if (length > most) break;
  }
  return rows;
}

/** It throws Refused once all its calls together took too long. */
function matcher(pattern: string, limitMs: number): Matcher {
  let expression: RegExp;
  try {
    expression = new RegExp(pattern, "u");
  } catch {
    // What other engines allow, such as needless backslashes.
    try {
      expression = new RegExp(pattern);
    } catch (cause) {
      throw new Refused(`The pattern is no regular expression: ${(cause as Error).message}`);
    }
  }
  const box = createContext({ expression, lines: [] as readonly string[] });
  const script = new Script("lines.flatMap((line, place) => (expression.test(line) ? [place] : []))");
  const endMs = performance.now() + limitMs;
  return (lines) => {
    box.lines = lines;
    const timeout = Math.max(1, Math.ceil(endMs - performance.now()));
    try {
      return script.runInContext(box, { timeout });
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code !== "ERR_SCRIPT_EXECUTION_TIMEOUT") throw cause;
      throw new Refused(
        `The search took longer than ${limitMs / 1000} s; use a simpler pattern or a smaller part.`,
      );
    }
  };
}

/** Files that are no text, or cannot be read, have no lines. */
function textLines(file: string): string[] {
  try {
    return readText(file, file).split(/\r?\n/);
  } catch {
    return [];
  }
}

function capped(rows: readonly string[], most: number): string {
  const shown: string[] = [];
  let left = most;
  for (const row of rows) {
    left -= row.length + 1;
    if (left < 0 && shown.length > 0) {
      return `${shown.join("\n")}\n… more matches; search in a smaller part or with a narrower pattern.`;
    }
    shown.push(row);
  }
  return shown.join("\n");
}
