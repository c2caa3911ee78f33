// Three runs as agents make them in this repository: finding how an edit is decided (search, then read, the oldest
// compacted), looking through the native side file after file (long reads in a row, the newer half compacted, so that
// survivors are on both sides), and answering a question from documents, with an expand near the end. Moves only;
// who makes them is agent.ts.
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Move, Script } from "./agent.ts";

/** Of `root`. `turns`: moves of each, at most what the files give. What is compacted grows with a result's size. */
export function scripts(root: string, turns: number, resultTokens: number): Script[] {
  const all = [bugHunt(root, turns), nativeReview(root, turns), research(root, turns)];
  return all.map(({ compactsAt, ...script }) => ({ ...script, compactsAt: compactsAt * resultTokens }));
}

/** `compactsAt` is in results here. */
function bugHunt(root: string, turns: number): Script {
  const words = [
    "planEdit",
    "relocated",
    "adoption",
    "exactLength",
    "splicesOf",
    "withoutContext",
    "remains",
  ];
  const searches = words.map(
    (pattern): Move => ({
      say: `Where is ${pattern} used? I search for it.`,
      tool: "search",
      given: { pattern, path: "src" },
    }),
  );
  const reads = parts(root, "src/session", ".ts", 40);
  const moves: Move[] = [{ say: "I look at what is there.", tool: "list", given: { path: "src", depth: 2 } }];
  for (let read = 0, search = 0; moves.length < turns && read < reads.length; ) {
    if (moves.length % 6 === 1 && search < searches.length) moves.push(searches[search++]!);
    else moves.push(reads[read++]!);
  }
  return {
    name: "bug-hunt",
    task: "After a compaction some cells seem to be computed that were resident. Find out how an edit is decided and where cells could be lost.",
    moves,
    answer:
      "The edit is decided by planEdit; cells are only lost where runs are shorter than the least survivors.",
    compactsAt: 10,
    keeps: 3,
  };
}

function nativeReview(root: string, turns: number): Script {
  return {
    name: "native-review",
    task: "Review the native side: pool, sequence, attention. Say what could throw on a request path.",
    moves: parts(root, "native", ".cpp", 40).slice(0, turns),
    answer:
      "Only pocket::Error is thrown on purpose, and it is turned into an error of the table at the floor.",
    compactsAt: 12,
    keeps: 2,
    newest: true,
  };
}

function research(root: string, turns: number): Script {
  const documents = [...parts(root, "src", ".md", 24), ...parts(root, "models", ".ts", 32)];
  const moves = documents.slice(0, turns - 1);
  const expand = {
    say: "I need the exact words of what I read first.",
    tool: "expand_block",
    given: { tag: "ctx-0001" },
  };
  moves.splice(Math.floor(moves.length * 0.8), 0, expand);
  return {
    name: "research",
    task: "From the documents of this repository, write down which decisions were taken about reuse, and what they rejected.",
    moves,
    answer: "Reuse is decided by whole spans that come back in order; a token-level difference was rejected.",
    compactsAt: 8,
    keeps: 4,
  };
}

/** Reads of all files under the folder, in parts of so many lines. */
function parts(root: string, folder: string, ending: string, lines: number): Move[] {
  const names = readdirSync(join(root, folder), { recursive: true, encoding: "utf8" });
  return names
    .filter((name) => name.endsWith(ending) && !name.includes("node_modules"))
    .toSorted()
    .flatMap((name) => {
      const path = `${folder}/${name.replaceAll("\\", "/")}`;
      const count = readFileSync(join(root, path), "utf8").split("\n").length;
      return Array.from({ length: Math.ceil(count / lines) }, (_, part): Move => {
        const [start, end] = [part * lines + 1, (part + 1) * lines];
        const say = part === 0 ? `Next I read ${path}.` : `I read on in ${path} from line ${start}.`;
        return { say, tool: "read", given: { path, start, end } };
      });
    });
}
