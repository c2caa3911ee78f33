// The tools read, write and edit. Text files only. An edit replaces a string that occurs exactly once. A file
// is written under a temporary name and renamed, so that a reader sees the old content or the new one.
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { dirname, posix } from "node:path";
import type { AgentTool, RemainingCalls } from "../tool.ts";
import { filesUnder } from "./list.ts";
import { agentTool, Refused } from "./tool-arguments.ts";
import type { Workspace } from "./workspace.ts";

/** Larger files are refused. */
const maxFileBytes = 16 * 1024 * 1024;
/** Files that the forced policy can list; with more, any path is allowed. */
const maxUnread = 100;
/** Paths listed to a model that reads a folder. */
const maxPathsShown = 20;
const path = { type: "string", description: "Path in the workspace, such as src/main.py" } as const;

/** `maxCharacters`: of one result. */
export function readTool(workspace: Workspace, maxCharacters: number): AgentTool {
  return agentTool(
    {
      name: "read",
      description:
        "Read a text file, with line numbers. Long files come in parts: the result says from where to go on.",
      fields: {
        path,
        start: { type: "integer", description: "Line to go on from; leave it out at first", optional: true },
      },
    },
    ({ path, start = 1 }) => {
      if (start < 1) throw new Refused(`There is no line ${start}; the first is 1.`);
      if (statSync(workspace.find(path)).isDirectory()) throw new Refused(filesIn(workspace, path));
      const lines = linesOf(readText(workspace.file(path), path));
      if (lines.length === 0) return `${path} is empty.`;
      if (start > lines.length)
        throw new Refused(`${path} has ${lines.length} lines; there is none at ${start}.`);
      return numbered(path, lines, start, maxCharacters);
    },
    (made) => unreadFiles(workspace, made),
  );
}

/** The files that no call has read, unless they are too many to list. */
function unreadFiles(workspace: Workspace, made: readonly string[]): RemainingCalls {
  const read = new Set(made.map(pathIn));
  const paths: string[] = [];
  for (const file of filesUnder(workspace.root)) {
    const path = workspace.name(file);
    if (!read.has(path) && paths.push(path) > maxUnread) return "any";
  }
  if (paths.length === 0) return "none";
  const properties = { path: { type: "string", enum: paths } };
  return { parameters: { type: "object", properties, required: ["path"], additionalProperties: false } };
}

function pathIn(json: string): string | undefined {
  try {
    const { path } = JSON.parse(json) as { readonly path?: unknown };
    return typeof path === "string" ? posix.normalize(path) : undefined;
  } catch {
    return undefined;
  }
}

export function writeTool(workspace: Workspace): AgentTool {
  return agentTool(
    {
      name: "write",
      description: "Write a whole text file; makes its folders, replaces what was there.",
      fields: { path, content: { type: "string", description: "The whole new content" } },
    },
    ({ path, content }) => {
      const file = workspace.locate(path);
      if (existsSync(file) && statSync(file).isDirectory())
        throw new Refused(`'${path}' is a folder; give the path of a file.`);
      try {
        mkdirSync(dirname(file), { recursive: true });
      } catch {
        throw new Refused(`'${path}' cannot be made: a part of the path is a file.`);
      }
      const old = existsSync(file) ? statSync(file) : undefined;
      replaceFile(file, content, old?.mode);
      return `${old ? "Replaced" : "Wrote"} ${path}: ${linesOf(content).length} lines.`;
    },
  );
}

export function editTool(workspace: Workspace): AgentTool {
  return agentTool(
    {
      name: "edit",
      description:
        "Replace a string in a file. `old` must occur exactly once, white space included; give enough lines around it to make it unique.",
      fields: {
        path,
        old: { type: "string", description: "The exact text to replace, without line numbers" },
        new: { type: "string", description: "The text in its place; empty to delete it" },
      },
    },
    ({ path, old, new: replacement }) => {
      if (old === "")
        throw new Refused("old is empty; give the text to replace, or use write for a new file.");
      if (old === replacement) throw new Refused("old and new are the same; nothing was changed.");
      const file = workspace.file(path);
      const text = readText(file, path);
      const offsets = offsetsOf(text, old);
      if (offsets.length === 0) {
        throw new Refused(
          `old does not occur in ${path}; nothing was changed. Read the file and copy the text exactly.`,
        );
      }
      if (offsets.length > 1) {
        const lines = offsets.slice(0, 10).map((offset) => lineAt(text, offset));
        throw new Refused(
          `old occurs ${offsets.length} times in ${path} (lines ${lines.join(", ")}); nothing was changed. Give more of the text around it.`,
        );
      }
      const offset = offsets[0]!;
      replaceFile(
        file,
        text.slice(0, offset) + replacement + text.slice(offset + old.length),
        statSync(file).mode,
      );
      return `Edited ${path} at line ${lineAt(text, offset)}.`;
    },
  );
}

/** For a model that reads a folder: the paths of its files, as `read` takes them. */
function filesIn(workspace: Workspace, path: string): string {
  const folder = workspace.find(path);
  const files = readdirSync(folder, { withFileTypes: true }).filter((entry) => entry.isFile());
  const paths = files.map(({ name }) => posix.join(path, name)).sort();
  if (paths.length === 0) return `'${path}' is a folder without files; use list to see what is in it.`;
  const shown = paths.slice(0, maxPathsShown).join(", ");
  const rest = paths.length > maxPathsShown ? `, and ${paths.length - maxPathsShown} more` : "";
  return `'${path}' is a folder. Read one of its files by its whole path: ${shown}${rest}.`;
}

/** `path`: the name in errors. Throws Refused for a file that is too large or not text. */
export function readText(file: string, path: string): string {
  const { size } = statSync(file);
  if (size > maxFileBytes)
    throw new Refused(`${path} has ${size} bytes; files up to ${maxFileBytes} are read.`);
  const bytes = readFileSync(file);
  if (bytes.subarray(0, 8192).includes(0)) throw new Refused(`${path} is not a text file.`);
  return bytes.toString("utf8");
}

/** Without the empty line after a final newline. */
export function linesOf(text: string): string[] {
  const lines = text.split("\n");
  if (lines.at(-1) === "") lines.pop();
  return lines;
}

function numbered(path: string, lines: readonly string[], start: number, maxCharacters: number): string {
  const rows: string[] = [];
  let left = maxCharacters;
  for (let number = start; number <= lines.length && left > 0; number++) {
    const line = lines[number - 1]!.replace(/\r$/, "");
    const row = `${number}\t${line}`;
    // The first line is always shown, cut if need be, or a caller could never read past it.
    if (row.length > left && rows.length > 0) break;
    rows.push(row.length > left ? `${row.slice(0, left)}… (line of ${line.length} characters, cut)` : row);
    left -= row.length + 1;
  }
  const last = start + rows.length - 1;
  const whole = start === 1 && last === lines.length;
  const more = last < lines.length ? `; go on with start ${last + 1}` : "";
  return whole
    ? rows.join("\n")
    : `${rows.join("\n")}\n(lines ${start} to ${last} of ${lines.length} in ${path}${more})`;
}

function replaceFile(file: string, content: string, mode: number | undefined): void {
  const temporary = `${file}.pocket-${process.pid}`;
  try {
    writeFileSync(temporary, content, mode === undefined ? {} : { mode });
    renameSync(temporary, file);
  } catch (cause) {
    rmSync(temporary, { force: true });
    throw cause;
  }
}

/** Of all occurrences, overlapping ones included. */
function offsetsOf(text: string, part: string): number[] {
  const offsets: number[] = [];
  for (let offset = text.indexOf(part); offset >= 0; offset = text.indexOf(part, offset + 1))
    offsets.push(offset);
  return offsets;
}

function lineAt(text: string, offset: number): number {
  return text.slice(0, offset).split("\n").length;
}
