// Texts that tools return in the made-up conversations: beginnings of files of this repository as they were when
// corpus.txt was frozen, so that a conversation is the same in every commit; or files below folders of this
// machine, to see what another kind of text changes.
import { readdirSync, readFileSync } from "node:fs";
import { basename, join } from "node:path";

export interface Excerpt {
  readonly path: string;
  /** Lines, each with its line break. */
  readonly lines: readonly string[];
}

export function readCorpus(): readonly Excerpt[] {
  const whole = readFileSync(new URL("corpus.txt", import.meta.url), "utf8");
  return whole
    .split(/^=== /m)
    .slice(1)
    .map((section) => {
      const [path, ...lines] = section.split("\n");
      return { path: path!, lines: lines.slice(0, -1).map((line) => `${line}\n`) };
    });
}

/** Bytes of a file that is neither too short for a result nor a table of data. */
const readable = { least: 4000, most: 200_000 };

/** The files in these folders (not below), by name: source and prose, each from its beginning to its end. */
export function readTexts(folders: readonly string[]): readonly Excerpt[] {
  return folders.flatMap((folder) =>
    readdirSync(folder, { withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map(({ name }) => join(folder, name))
      .toSorted()
      .map((path) => ({ path: basename(path), text: readFileSync(path, "utf8") }))
      .filter(({ text }) => text.length >= readable.least && text.length <= readable.most)
      .map(({ path, text }) => ({ path, lines: text.split("\n").map((line) => `${line}\n`) })),
  );
}

const common = new Set("export import readonly return function undefined const number string".split(" "));

/** Words that look like names of a program, in order of appearance, each once; prose has its long words behind them. */
export function namesIn(text: string): readonly string[] {
  const words = text.match(/\b[A-Za-z_]{3,}[a-z]?(?:[A-Z][a-z]+|_[a-z]+)\w*\b/g) ?? [];
  const names = new Set(words.filter((word) => word.length <= 24 && !common.has(word)));
  const long = names.size < fewNames ? (text.match(/\b[A-Za-z]{8,24}\b/g) ?? []) : [];
  return [...new Set([...names, ...long])];
}

/** As many as an assistant message names. */
const fewNames = 6;
