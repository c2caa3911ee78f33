// The files of the repository that the structure tests read, and their imports as a graph.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = fileURLToPath(new URL("../..", import.meta.url)).replace(/\/$/, "");

/** Paths relative to the root, sorted. */
export function filesUnder(folder: string, ending: RegExp): string[] {
  return readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && ending.test(entry.name))
    .map((entry) => join(entry.parentPath, entry.name).slice(root.length + 1))
    .filter((path) => !path.includes("node_modules/"))
    .sort();
}

export function read(path: string): string {
  return readFileSync(join(root, path), "utf8");
}

export function exists(path: string): boolean {
  return existsSync(join(root, path));
}

export const typescript = ["src", "models", "bench", "scripts", "test"].flatMap((folder) =>
  filesUnder(folder, /\.ts$/),
);
export const native = filesUnder("native", /\.(h|cpp|cu|cuh)$/);
/** Markdown that people read: not data of tests, not results of benches. */
export const documents = [
  ...readdirSync(root).filter((name) => name.endsWith(".md")),
  ...["src", "models", "native", "bench", "docs", "test"].flatMap((folder) => filesUnder(folder, /\.md$/)),
].filter((path) => !path.startsWith("bench/results/"));

/** Each cycle of the graph once, as the nodes from its first to its last. */
export function cyclesOf(graph: ReadonlyMap<string, readonly string[]>): string[][] {
  const cycles: string[][] = [];
  const done = new Set<string>();
  const path: string[] = [];
  const visit = (node: string): void => {
    if (done.has(node)) return;
    const start = path.indexOf(node);
    if (start >= 0) {
      cycles.push([...path.slice(start), node]);
      return;
    }
    path.push(node);
    for (const next of graph.get(node) ?? []) visit(next);
    path.pop();
    done.add(node);
  };
  for (const node of graph.keys()) visit(node);
  return cycles;
}

/** Links of a Markdown file to files of the repository, as paths relative to the root. */
export function linksOf(document: string): string[] {
  const text = read(document).replace(/```[\s\S]*?```/g, "");
  return [...text.matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, target]) => target!.replace(/#.*$/, ""))
    .filter((target) => target !== "" && !/^[a-z]+:/.test(target))
    .map((target) => join(dirname(document), decodeURI(target)));
}

const topFolders = /^(src|models|native|bench|test|docs|scripts)\//;
/** Folders that are written at run time. */
const generated = /^bench\/results\//;

/** Paths in backticks that begin with a folder of the top level; `a/{b,c}.ts` is two, patterns and folders in <> none. */
export function mentionedPaths(document: string): string[] {
  const text = read(document).replace(/```[\s\S]*?```/g, "");
  return [...text.matchAll(/`([^`\s]+)`/g)]
    .map(([, mention]) => mention!.replace(/:\d+(-\d+)?$/, ""))
    .filter((mention) => topFolders.test(mention) && !generated.test(mention) && !/[*<>…]/.test(mention))
    .flatMap(expandBraces);
}

function expandBraces(path: string): string[] {
  const braces = /^(.*)\{([^}]*)\}(.*)$/.exec(path);
  if (!braces) return [path];
  const [, before, choices, after] = braces;
  return choices!.split(",").flatMap((choice) => expandBraces(`${before}${choice}${after}`));
}

/** Words of the identifiers in a source file, in lower case; comments and strings are left out. */
export function identifierWords(path: string): Set<string> {
  const code = read(path)
    .replace(/\/\*[\s\S]*?\*\//g, "")
    .replace(/\/\/.*$/gm, "")
    .replace(/"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'/g, "");
  const words = new Set<string>();
  for (const [name] of code.matchAll(/[A-Za-z_$][\w$]*/g))
    for (const word of name.split(/_|\d|(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])/))
      if (word !== "") words.add(word.toLowerCase());
  return words;
}
