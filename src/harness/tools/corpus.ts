// The tools search_documents and open_document, for research tasks: a collection of documents in a full-text
// index (SQLite FTS5, BM25). The index lives in memory and is built from a folder; the agent cannot change
// it.
import { readFileSync } from "node:fs";
import { extname, relative } from "node:path";
import Database from "better-sqlite3";
import { PocketError } from "../../errors.ts";
import type { AgentTool } from "../tool.ts";
import { filesUnder } from "./list.ts";
import { agentTool, Refused } from "./tool-arguments.ts";

export interface Document {
  readonly id: string;
  readonly title: string;
  readonly text: string;
}

export interface Hit {
  readonly id: string;
  readonly title: string;
  /** Up to 48 words around the best match. */
  readonly preview: string;
}

export class Corpus {
  readonly #database = new Database(":memory:");

  constructor(documents: Iterable<Document>) {
    this.#database.exec(
      "CREATE VIRTUAL TABLE documents USING fts5(id UNINDEXED, title, text, tokenize='porter unicode61')",
    );
    const insert = this.#database.prepare("INSERT INTO documents (id, title, text) VALUES (?, ?, ?)");
    this.#database.transaction(() => {
      for (const { id, title, text } of documents) insert.run(id, title, text);
    })();
  }

  get size(): number {
    const row = this.#database.prepare("SELECT count(*) AS count FROM documents").get() as { count: number };
    return row.count;
  }

  /**
   * Best match first. A document with any of the words matches; words of the title weigh four times as much.
   */
  search(query: string, limit: number): Hit[] {
    // Words are quoted, so that FTS5 takes none of them for an operator.
    const words = query.match(/[\p{L}\p{N}]+/gu) ?? [];
    if (words.length === 0) return [];
    return this.#database
      .prepare<[string, number], Hit>(
        "SELECT id, title, snippet(documents, 2, '', '', ' … ', 48) AS preview FROM documents WHERE documents MATCH ? ORDER BY bm25(documents, 0, 4, 1), id LIMIT ?",
      )
      .all([...new Set(words)].map((word) => `"${word}"`).join(" OR "), limit);
  }

  open(id: string): Document | undefined {
    return this.#database
      .prepare<[string], Document>("SELECT id, title, text FROM documents WHERE id = ?")
      .get(id);
  }

  /** Idempotent. */
  close(): void {
    this.#database.close();
  }
}

/**
 * The documents in a folder: each .txt and .md file, with its path as id, and each line of a .jsonl file:
 * {id or docid, title?, text or contents}. Throws BAD_CONFIG for any other line.
 */
export function* documentsOf(folder: string): Generator<Document, void, undefined> {
  for (const file of filesUnder(folder)) {
    const name = relative(folder, file);
    const kind = extname(file);
    if (kind === ".jsonl") yield* linesAsDocuments(file, name);
    if (kind !== ".txt" && kind !== ".md") continue;
    const text = readFileSync(file, "utf8");
    const title = text
      .split("\n", 1)[0]!
      .replace(/^#+\s*/, "")
      .slice(0, 120);
    yield { id: name, title: title || name, text };
  }
}

/** `maxCharacters`: of one result. */
export function corpusTools(corpus: Corpus, maxCharacters: number): AgentTool[] {
  const search = agentTool(
    {
      name: "search_documents",
      description:
        "Search the collection of documents by words. Gives ids, titles and a preview, the best first.",
      fields: {
        query: { type: "string", description: "Words that the document should have" },
        limit: { type: "integer", description: "How many, 1 to 20; default 5", optional: true },
      },
    },
    ({ query, limit = 5 }) => {
      if (limit < 1 || limit > 20) throw new Refused("limit is a number from 1 to 20.");
      const hits = corpus.search(query, limit);
      if (hits.length === 0) return `No document has a word of '${query}'.`;
      const perHit = Math.floor(maxCharacters / hits.length);
      return hits
        .map(({ id, title, preview }) => `[${id}] ${title}\n${preview}`.slice(0, perHit))
        .join("\n\n");
    },
  );
  const open = agentTool(
    {
      name: "open_document",
      description:
        "Read a document of the collection. Long ones come in parts: the result says from where to go on.",
      fields: {
        id: { type: "string", description: "Id from search_documents, without the brackets" },
        start: { type: "integer", description: "First character, from 0; default 0", optional: true },
      },
    },
    ({ id, start = 0 }) => {
      const document = corpus.open(id.replace(/^\[|\]$/g, ""));
      if (!document) throw new Refused(`There is no document '${id}'. Ids come from search_documents.`);
      const { title, text } = document;
      if (start < 0 || start >= Math.max(1, text.length))
        throw new Refused(`${id} has ${text.length} characters; start is from 0 to one less.`);
      const end = Math.min(text.length, start + maxCharacters);
      const more =
        end < text.length
          ? `\n(characters ${start} to ${end} of ${text.length}; go on with start ${end})`
          : "";
      return `${start === 0 ? `${title}\n` : ""}${text.slice(start, end)}${more}`;
    },
  );
  return [search, open];
}

function* linesAsDocuments(file: string, name: string): Generator<Document, void, undefined> {
  const lines = readFileSync(file, "utf8").split("\n");
  for (const [index, line] of lines.entries()) {
    if (line.trim() === "") continue;
    const { id, docid, title, text, contents } = fieldsOf(line);
    const key = id ?? docid;
    const body = text ?? contents;
    if ((typeof key !== "string" && typeof key !== "number") || typeof body !== "string") {
      const wanted = '{"id": "…", "title": "…", "text": "…"}';
      throw new PocketError(
        "BAD_CONFIG",
        `Line ${index + 1} of ${name} is no document: it must be ${wanted}.`,
      );
    }
    yield { id: String(key), title: typeof title === "string" ? title : "", text: body };
  }
}

/** No fields if the line is not a JSON object. */
function fieldsOf(line: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(line);
    return typeof value === "object" && value !== null ? { ...value } : {};
  } catch {
    return {};
  }
}
