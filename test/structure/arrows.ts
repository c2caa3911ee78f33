// The table of allowed imports between rooms (docs/design.md has it in words), and the reader of imports and includes.
// structure.test.ts checks the tree against it. A room is a folder of src/, or a folder of the top level.
export interface Import {
  readonly from: string;
  /** A path relative to the root; for a package or a system header, its name. */
  readonly to: string;
}

/** Rooms that a room may import, besides itself. `*`: all. */
export const rooms: Readonly<Record<string, readonly string[]>> = {
  "src/errors": [],
  "src/repair": ["src/chat"],
  "src/config": ["src/errors", "src/repair"],
  "src/chat": [],
  "src/context": ["src/chat", "src/errors"],
  "src/harness": ["src/context", "src/chat", "src/errors"],
  "src/text": ["src/chat", "src/errors"],
  "src/engine": ["src/errors"],
  "src/session": ["src/chat", "src/text", "src/engine", "src/errors"],
  "src/server": ["src/session", "src/harness", "src/context", "src/chat", "src/errors", "src/repair"],
  "src/cli": ["*"],
  "src/main": ["*"],
  models: ["src/errors"],
  bench: ["*"],
  scripts: ["*"],
  test: ["*"],
};

/** Rooms that may import a package. Packages that are not listed are free. */
export const packages: readonly { readonly name: RegExp; readonly rooms: readonly string[] }[] = [
  { name: /^(fastify|@fastify\/.*|fastify-type-provider-zod)$/, rooms: ["src/server"] },
  { name: /^@huggingface\//, rooms: ["src/text", "models"] },
  { name: /^@mlc-ai\//, rooms: ["src/text"] },
  { name: /^(node:)?https?$/, rooms: ["src/server", "src/cli", "models"] },
  { name: /^(commander|cli-progress|close-with-grace)$/, rooms: ["src/cli", "src/main"] },
];

/** Rooms outside the product: they may import any package. */
const outside = new Set(["test", "bench", "scripts"]);

/** `src/server/sse.ts` → `src/server`; `src/config/config.ts` → `src/config`; `models/readers/gguf.ts` → `models`. */
export function roomOf(path: string): string {
  const [top, second] = path.split("/");
  if (top !== "src" || second === undefined) return top!;
  return `src/${second.replace(/\.ts$/, "")}`;
}

/** The reason why an import is not allowed; null if it is. */
export function objection({ from, to }: Import): string | null {
  const room = roomOf(from);
  const allowed = rooms[room];
  if (allowed === undefined) return `${from}: there is no room '${room}' in the table`;
  if (!/^(src|models|bench|scripts|test|native)\//.test(to)) {
    const rule = packages.find(({ name }) => name.test(to));
    if (rule === undefined || rule.rooms.includes(room) || outside.has(room)) return null;
    return `${from} imports ${to}, which only ${rule.rooms.join(", ")} may import`;
  }
  const target = roomOf(to);
  if (target === room || allowed.includes("*")) return null;
  return allowed.includes(target) ? null : `${from} imports ${to}, but ${room} may not import ${target}`;
}

/** Static and dynamic imports and re-exports of a TypeScript file. */
export function importsOf(from: string, text: string): Import[] {
  const code = text.replace(/\/\*[\s\S]*?\*\//g, "").replace(/^\s*\/\/.*$/gm, "");
  const pattern =
    /\b(?:import|export)\s+(?:type\s+)?(?:[\w*{}\s,$]+?\s+from\s+)?"([^"\n]+)"|\bimport\(\s*["'`]([^"'`\n]+)["'`]/g;
  return [...code.matchAll(pattern)].map(([, fixed, dynamic]) => ({
    from,
    to: resolve(from, fixed ?? dynamic!),
  }));
}

/** `#include` lines of a C++ file; quoted names are relative to native/. */
export function includesOf(from: string, text: string): Import[] {
  return [...text.matchAll(/^\s*#\s*include\s*([<"])([^>"]+)[>"]/gm)].map(([, quote, name]) => ({
    from,
    to: quote === '"' ? `native/${name}` : name!,
  }));
}

function resolve(from: string, to: string): string {
  if (!to.startsWith(".")) return to;
  return new URL(to, `file:///${from}`).pathname.slice(1);
}
