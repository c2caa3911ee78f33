import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { runTool } from "../../src/harness/tool.ts";
import { Corpus, corpusTools, documentsOf } from "../../src/harness/tools/corpus.ts";

let folder: string;
let corpus: Corpus;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "pocket-corpus-"));
  mkdirSync(join(folder, "notes"));
  writeFileSync(join(folder, "rivers.md"), "# Rivers\nThe Danube flows through ten countries.\n");
  writeFileSync(
    join(folder, "notes", "seas.txt"),
    `Seas\n${"The Danube ends in the Black Sea. ".repeat(200)}`,
  );
  writeFileSync(
    join(folder, "more.jsonl"),
    '{"id": "m1", "title": "Mountains", "text": "The Alps are high."}\n\n{"docid": 7, "contents": "AND OR NEAR are words."}\n',
  );
  corpus = new Corpus(documentsOf(folder));
});
afterEach(() => {
  corpus.close();
  rmSync(folder, { recursive: true });
});

const use = (name: string, given: object, maxCharacters = 1000) =>
  runTool(
    corpusTools(corpus, maxCharacters),
    { id: "1", name, arguments: JSON.stringify(given) },
    new AbortController().signal,
  );

test("search ranks the document with the rarest words first and matches inflected words", async () => {
  expect(corpus.size).toBe(4);
  expect(corpus.search("country of the danube", 5).map(({ id }) => id)[0]).toBe("rivers.md");
  expect(corpus.search("mountain", 5).map(({ id }) => id)).toEqual(["m1"]);
  expect(await use("search_documents", { query: "alps" })).toBe("[m1] Mountains\nThe Alps are high.");
});

test.each(['"', "near(", "a AND", "*", "text:alps", "alps OR", "-"])(
  "the query %j is taken as words, not as operators",
  (query) => {
    expect(() => corpus.search(query, 5)).not.toThrow();
  },
);

test("the parts of a long document add up to the whole", async () => {
  let text = "";
  for (let start: number | undefined = 0; start !== undefined; ) {
    const part = await use("open_document", { id: "notes/seas.txt", start }, 500);
    const next = /\n\(characters \d+ to \d+ of \d+; go on with start (\d+)\)$/.exec(part);
    text += part.slice(start === 0 ? "Seas\n".length : 0, next ? next.index : undefined);
    start = next ? Number(next[1]) : undefined;
  }
  expect(text).toBe(corpus.open("notes/seas.txt")!.text);
});

test("missing documents, words and fields are reported", async () => {
  expect(await use("open_document", { id: "none" })).toBe(
    "There is no document 'none'. Ids come from search_documents.",
  );
  expect(await use("search_documents", { query: "zebra" })).toBe("No document has a word of 'zebra'.");
  writeFileSync(join(folder, "bad.jsonl"), '{"id": "x"}\n');
  expect(() => [...documentsOf(folder)]).toThrow("Line 1 of bad.jsonl is no document");
});
