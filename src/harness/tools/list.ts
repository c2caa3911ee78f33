// The tool `list`, and the walk over all files of a folder that other tools share. Symbolic links are listed
// and not followed. Folders of version control and of installed packages are listed and not entered.
import { readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import type { AgentTool } from "../tool.ts";
import { agentTool, Refused } from "./tool-arguments.ts";
import type { Workspace } from "./workspace.ts";

/** Listed and not entered, because they have thousands of files that are not the user's work. */
export const skippedFolders: readonly string[] = [
  ".git",
  ".hg",
  ".svn",
  "node_modules",
  "__pycache__",
  ".venv",
];

/** `maxCharacters`: of one result. */
export function listTool(workspace: Workspace, maxCharacters: number): AgentTool {
  return agentTool(
    {
      name: "list",
      description: "List a folder of the workspace: files with their sizes, folders with a slash.",
      fields: {
        path: { type: "string", description: "Folder in the workspace; default: its top", optional: true },
        depth: { type: "integer", description: "Levels to go down, 1 to 8; default 1", optional: true },
      },
    },
    ({ path = ".", depth = 1 }) => {
      const folder = workspace.find(path);
      if (!statSync(folder).isDirectory()) throw new Refused(`'${path}' is a file; use read for it.`);
      if (depth < 1 || depth > 8) throw new Refused("depth is a number from 1 to 8.");
      const rows: string[] = [];
      let left = maxCharacters;
      for (const row of rowsOf(folder, depth)) {
        left -= row.length + 1;
        if (left < 0) {
          rows.push("… more; list a folder in it, or use a smaller depth.");
          break;
        }
        rows.push(row);
      }
      return rows.length === 0 ? `${path} is an empty folder.` : rows.join("\n");
    },
  );
}

/** Regular files under `folder`, absolute, sorted, depth first. */
export function* filesUnder(folder: string): Generator<string, void, undefined> {
  for (const entry of entriesOf(folder)) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) {
      if (!skippedFolders.includes(entry.name)) yield* filesUnder(path);
    } else if (entry.isFile()) yield path;
  }
}

function* rowsOf(folder: string, depth: number, indent = ""): Generator<string, void, undefined> {
  for (const entry of entriesOf(folder)) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) {
      const isSkipped = skippedFolders.includes(entry.name);
      yield `${indent}${entry.name}/${isSkipped ? " (not listed)" : ""}`;
      if (depth > 1 && !isSkipped) yield* rowsOf(path, depth - 1, `${indent}  `);
    } else if (entry.isSymbolicLink()) yield `${indent}${entry.name} (link)`;
    else yield `${indent}${entry.name} ${statSync(path, { throwIfNoEntry: false })?.size ?? 0} bytes`;
  }
}

/** Sorted by name. A folder that cannot be read has none. */
function entriesOf(folder: string) {
  try {
    return readdirSync(folder, { withFileTypes: true }).sort((one, other) =>
      one.name < other.name ? -1 : 1,
    );
  } catch {
    return [];
  }
}
