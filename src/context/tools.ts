// The two tools by which an agent manages its context, as the model sees them, and what is common to both: a
// tool returns text for the model. A refusal is text, because the model can correct itself; operating errors
// are thrown.
import type { Tool } from "../chat/chat.ts";

/** Definition of the tool for the model. `compactBlock` runs its calls. */
export const compactTool: Tool = {
  name: "compact_block",
  description:
    "Replace a range of context blocks by a short summary. The originals are archived word for word under a tag and can be brought back with expand_block. Use it for work that is finished, before the context is full.",
  parameters: {
    type: "object",
    properties: {
      start: {
        type: "string",
        description: "First block of the range, an id from the context catalog: b001",
      },
      end: { type: "string", description: "Last block of the range, included; may equal start" },
      focus: { type: "string", description: "What the summary must keep in particular" },
    },
    required: ["start", "end"],
    additionalProperties: false,
  },
};

/** Definition of the tool for the model. `expandBlock` runs its calls. */
export const expandTool: Tool = {
  name: "expand_block",
  description:
    "Bring back the archived messages of a tag, word for word, at the end of the context. Tags that it refers to are listed, not expanded.",
  parameters: {
    type: "object",
    properties: { tag: { type: "string", description: "A tag from the head of a memory: ctx-0001" } },
    required: ["tag"],
    additionalProperties: false,
  },
};

/** Whether a call of this name manages the context, instead of working on the task. */
export function isContextTool(name: string): boolean {
  return name === compactTool.name || name === expandTool.name;
}

/** What a context tool did. */
export interface ToolOutcome<Done> {
  /** The tool's result, for the model. */
  readonly text: string;
  /** Absent when the tool refused; then nothing has changed. */
  readonly done?: Done;
}

/** A sentence for the model: what is wrong, the numbers, and what to do instead. */
export interface Refusal {
  readonly refusal: string;
}

/** The text fields of a call's arguments. Optional ones may be absent. */
export function readArguments<Required extends string, Optional extends string = never>(
  json: string,
  required: readonly Required[],
  optional: readonly Optional[] = [],
): ({ readonly [key in Required]: string } & { readonly [key in Optional]?: string }) | Refusal {
  const form = `{${[...required, ...optional.map((name) => `${name}?`)].join(", ")}}`;
  const read = parseArguments(json, form);
  if ("refusal" in read) return read;
  const { fields } = read;
  const bad = [...required, ...optional].filter((name) => {
    const value = fields[name];
    const isAbsent = value === undefined || value === null;
    return isAbsent ? required.includes(name as Required) : typeof value !== "string";
  });
  if (bad.length > 0) return { refusal: `${bad.join(" and ")} must be text: ${form}. Call again.` };
  const wanted = [...required, ...optional].filter((name) => typeof fields[name] === "string");
  return Object.fromEntries(wanted.map((name) => [name, fields[name]])) as never;
}

/** The JSON object in a call's arguments. `form`: its fields, for the refusal. */
export function parseArguments(
  json: string,
  form: string,
): { readonly fields: Readonly<Record<string, unknown>> } | Refusal {
  let given: unknown;
  try {
    given = JSON.parse(json);
  } catch {
    return { refusal: `The arguments are not JSON; they have the form ${form}. Call again.` };
  }
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    return { refusal: `The arguments must be an object of the form ${form}. Call again.` };
  }
  return { fields: given as Readonly<Record<string, unknown>> };
}
