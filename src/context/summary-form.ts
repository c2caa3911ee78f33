// A summary as a form: an answer constrained to one field per call of the range, for compressors that are too small to
// find by themselves what a range held. The names of the fields are the conversation's, what stands in them is the
// model's. Which compressor gets one is its caller's decision; the article's compressor writes free text.

import type { AnswerFormat, ToolCall } from "../chat/chat.ts";
import type { Block } from "./block.ts";
import { compactTool, expandTool } from "./tools.ts";

/** Characters of a field's name. */
const maxNameLength = 72;

/** One per call, `src/main.py`, and the tag of a memory; none for requests and calls that manage the context. */
export function fieldsOf(blocks: readonly Block[]): string[] {
  const fields = blocks.flatMap((block) => {
    if (block.kind === "memory") return [block.tag];
    return block.originals.flatMap(({ message }) => (message.toolCalls ?? []).filter(isWork).map(fieldOf));
  });
  return [...new Set(fields)];
}

/** Not strict: a Chat that cannot compile it leaves it, and the answer is taken as it comes. */
export function formatOf(fields: readonly string[]): AnswerFormat {
  const properties = Object.fromEntries(fields.map((field) => [field, { type: "string" }]));
  const schema = { type: "object", properties, required: fields, additionalProperties: false };
  return { type: "json_schema", schema, strict: false };
}

/** A line per field; what is no such form is left as it is. */
export function textOf(answer: string, fields: readonly string[]): string {
  try {
    const form = JSON.parse(answer) as Readonly<Record<string, unknown>>;
    const lines = fields.map((field) => `${field}: ${String(form[field] ?? "").trim()}`);
    return fields.some((field) => String(form[field] ?? "").trim() !== "") ? lines.join("\n") : "";
  } catch {
    return answer;
  }
}

function isWork({ name }: ToolCall): boolean {
  return name !== compactTool.name && name !== expandTool.name;
}

/** The first argument that is text, or the tool where there is none: what the call was about. */
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
