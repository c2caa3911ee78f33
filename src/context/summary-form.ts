// A summary as a form: the compressor's answer is constrained to one text field per call of the range. For
// models too small to find by themselves what a range holds. The caller of compactBlock decides whether to
// use it; the article's compressor writes free text.
import type { AnswerFormat, ToolCall } from "../chat/chat.ts";
import type { Block } from "./block.ts";
import { isContextTool } from "./tools.ts";

/** Characters of a field's name. */
const maxNameLength = 72;

/**
 * Field names for a range: per call its first text argument (`src/main.py`), per memory its tag. Requests and
 * calls of the context tools have none.
 */
export function fieldsOf(blocks: readonly Block[]): string[] {
  const fields = blocks.flatMap((block) => {
    if (block.kind === "memory") return [block.tag];
    return block.originals.flatMap(({ message }) =>
      (message.toolCalls ?? []).filter(({ name }) => !isContextTool(name)).map(fieldOf),
    );
  });
  return [...new Set(fields)];
}

/** Not strict: a Chat that cannot compile the schema ignores it, and `textOf` accepts the free text. */
export function formatOf(fields: readonly string[]): AnswerFormat {
  const properties = Object.fromEntries(fields.map((field) => [field, { type: "string" }]));
  const schema = { type: "object", properties, required: fields, additionalProperties: false };
  return { type: "json_schema", schema, strict: false };
}

/** One line per field; empty if all fields are; the answer itself if it is not JSON. */
export function textOf(answer: string, fields: readonly string[]): string {
  try {
    const form = JSON.parse(answer) as Readonly<Record<string, unknown>>;
    const lines = fields.map((field) => `${field}: ${String(form[field] ?? "").trim()}`);
    return fields.some((field) => String(form[field] ?? "").trim() !== "") ? lines.join("\n") : "";
  } catch {
    return answer;
  }
}

/** The first text argument of the call, or the tool's name. */
function fieldOf({ name, arguments: json }: ToolCall): string {
  let about: unknown;
  try {
    about = Object.values(JSON.parse(json) as object).find((value) => typeof value === "string");
  } catch {
    about = undefined;
  }
  const text =
    String(about ?? name)
      .replace(/[\s"\\]+/g, " ")
      .trim() || name;
  return text.length > maxNameLength ? `${text.slice(0, maxNameLength - 1)}…` : text;
}
