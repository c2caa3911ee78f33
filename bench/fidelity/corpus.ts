// Texts that tools return in the made-up conversations: beginnings of files of this repository as they were when
// the benchmark was written, frozen in corpus.txt, so that a conversation is the same in every commit.
import { readFileSync } from "node:fs";

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

const common = new Set("export import readonly return function undefined const number string".split(" "));

/** Words that look like names of a program, in order of appearance, each once. */
export function namesIn(text: string): readonly string[] {
  const words = text.match(/\b[A-Za-z_]{3,}[a-z]?(?:[A-Z][a-z]+|_[a-z]+)\w*\b/g) ?? [];
  const names = words.filter((word) => word.length <= 24 && !common.has(word));
  return [...new Set(names)];
}
