// What an answer is constrained to, as a plan for a grammar: a forced tool call, strict arguments, JSON of a schema.
// Decides which schemas count and what becomes of those that no grammar can be made of: refused where the
// client relies on them, else any object. It walks no grammar.
import type { ChatRequest, Tool } from "../context/chat.ts";
import { PocketError, pocketError } from "../errors.ts";
import type { Grammar, Grammars } from "../text/grammar.ts";
import { grammarSchema } from "../text/schema.ts";
import type { GrammarPlan } from "../text/xgrammar.ts";

type Constraints = Pick<ChatRequest, "tools" | "toolChoice" | "parallelToolCalls" | "format">;

const anyObject = JSON.stringify({ type: "object" });

/** Undefined: the answer is free. Throws BAD_SCHEMA with the field at fault. To be disposed by the caller. */
export async function constrain(grammars: Grammars, request: Constraints): Promise<Grammar | undefined> {
  const { tools = [], toolChoice = "auto", format } = request;
  if (tools.length === 0) return format && constrainFormat(grammars, format);
  if (toolChoice === "none") return undefined; // a mask of its own, no grammar: text/no-call.ts
  // Free text around calls needs a grammar only where some tool is strict.
  if (toolChoice === "auto" && !tools.some(({ strict }) => strict)) return undefined;
  const wanted = tools.map((tool, place) => argumentsSchema(tool, place, toolChoice !== "auto"));
  const grammar = await grammars.start(callsPlan(request, tools, wanted));
  if (typeof grammar !== "string") return grammar;
  // One of them is to blame: those that nobody relies on give way.
  const proven: string[] = [];
  for (const [place, tool] of tools.entries()) {
    proven.push(await provenSchema(grammars, tool, place, wanted[place]!));
  }
  const rest = await grammars.start(callsPlan(request, tools, proven));
  if (typeof rest === "string") throw badSchema("tools", rest);
  return rest;
}

const schemaField = "response_format.json_schema.schema";

type Format = NonNullable<ChatRequest["format"]>;

async function constrainFormat(grammars: Grammars, format: Format): Promise<Grammar | undefined> {
  const fit = format.type === "json_schema" ? grammarSchema(format.schema) : { text: anyObject };
  const strict = format.type === "json_schema" && format.strict;
  let refusal: PocketError;
  if ("text" in fit) {
    const grammar = await grammars.start({ schemas: [fit.text] });
    if (typeof grammar !== "string") return grammar;
    refusal = badSchema(schemaField, grammar);
  } else {
    refusal = badSchema(fieldOf(schemaField, fit.path), fit.sentence);
  }
  if (strict) throw refusal;
  const any = await grammars.start({ schemas: [anyObject] });
  if (typeof any === "string") throw badSchema("response_format", any);
  return any;
}

function callsPlan(
  { toolChoice = "auto", parallelToolCalls = true }: Constraints,
  tools: readonly Tool[],
  schemas: readonly string[],
): GrammarPlan {
  const named = typeof toolChoice === "object" ? toolChoice.name : undefined;
  const places = [...tools.keys()].filter((place) => named === undefined || tools[place]!.name === named);
  return {
    schemas: places.map((place) => schemas[place]!),
    frames: places.map((place) => ({
      begin: `<tool_call>\n{"name": ${JSON.stringify(tools[place]!.name)}, "arguments": `,
      end: "}\n</tool_call>",
    })),
    once: named !== undefined || !parallelToolCalls,
    ...(toolChoice === "auto" && { free: "<tool_call>" }),
  };
}

/** Of a strict tool, and of any in a forced call: what is refused there is refused, and here is any object. */
function argumentsSchema({ parameters, strict }: Tool, place: number, forced: boolean): string {
  if (parameters === undefined || !(strict || forced)) return anyObject;
  const fit = grammarSchema(parameters);
  if ("text" in fit) return fit.text;
  if (strict) throw badSchema(fieldOf(fieldOfTool(place), fit.path), fit.sentence);
  return anyObject;
}

async function provenSchema(
  grammars: Grammars,
  { strict }: Tool,
  place: number,
  schema: string,
): Promise<string> {
  const tried = await grammars.start({ schemas: [schema] });
  if (typeof tried !== "string") {
    tried.dispose();
    return schema;
  }
  if (strict) throw badSchema(fieldOfTool(place), tried);
  return anyObject;
}

function fieldOfTool(place: number): string {
  return `tools.${place}.function.parameters`;
}

function fieldOf(field: string, path: string): string {
  return path === "" ? field : `${field}.${path}`;
}

function badSchema(field: string, sentence: string): PocketError {
  const { code, detail } = pocketError("BAD_SCHEMA", field, sentence);
  return new PocketError(code, detail, field);
}
