// Checks documents and words: lengths of READMEs, links, paths, references that a reader cannot open.
import { describe, expect, test } from "vitest";
import {
  documents,
  exists,
  filesUnder,
  identifierWords,
  linksOf,
  mentionedPaths,
  native,
  read,
  typescript,
} from "./tree.ts";

describe("documents", () => {
  test("named README have at most 150 lines", () => {
    const long = documents.filter(
      (path) => path.endsWith("README.md") && read(path).trimEnd().split("\n").length > 150,
    );
    expect(long).toEqual([]);
  });

  test("link to files that exist", () => {
    const links = documents.flatMap((path) => linksOf(path).map((target) => `${path} → ${target}`));
    expect(links.length).toBeGreaterThan(20);
    expect(links.filter((link) => !exists(link.split(" → ")[1]!))).toEqual([]);
  });

  test("mention paths that exist", () => {
    const mentions = documents.flatMap((path) => mentionedPaths(path).map((target) => `${path} → ${target}`));
    expect(mentions.length).toBeGreaterThan(20);
    const missing = mentions.filter((mention) => !exists(mention.split(" → ")[1]!));
    expect(missing).toEqual([]);
  });
});

const sources = [...typescript, ...native, ...filesUnder("test/native", /\.(h|cpp)$/)];

test("nothing refers to documents that are not in the repository", () => {
  const reference = new RegExp(["design §", "the catalog" + "ue", "issue \\d"].join("|"), "i");
  const own = "test/structure/documents.test.ts";
  const offenders = [...sources, ...documents]
    .filter((path) => path !== own)
    .flatMap((path) =>
      read(path)
        .split("\n")
        .flatMap((line, i) => (reference.test(line) ? [`${path}:${i + 1}`] : [])),
    );
  expect(offenders).toEqual([]);
});

describe("identifiers", () => {
  /** Words that were replaced by those of the field (docs/glossary.md). Not `tally`: stored events have that key. */
  const replaced = [
    ...["seat", "seats", "grave", "graves", "aftermath", "island", "islands", "lifeline", "lifelines"],
    ...["till", "ledger", "ledgers", "rival", "rivals", "contender", "contenders"],
  ];

  test("are read without comments and strings", () => {
    const words = identifierWords("test/structure/tree.ts");
    expect(words.has("cycles")).toBe(true);
    expect(words.has("markdown")).toBe(false);
  });

  test("do not use the replaced words", () => {
    const offenders = [...sources, ...typescript].flatMap((path) => {
      const words = identifierWords(path);
      const names = [...replaced.filter((word) => words.has(word))];
      return names.map((word) => `${path}: ${word}`);
    });
    expect([...new Set(offenders)]).toEqual([]);
  });
});
