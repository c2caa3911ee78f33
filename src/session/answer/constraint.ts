// Decides what an answer is constrained to and plans its grammar: a forced tool call, strict arguments, JSON of a
// schema, or a call or such JSON. A schema that no grammar can express is an error if the client relies on it;
// otherwise any object is accepted and a warning is returned.
import type { ChatRequest, Tool } from "../../chat/chat.ts";
import { PocketError, pocketError } from "../../errors.ts";
import type { Grammars, TokenConstraint } from "../../text/grammar.ts";
import { grammarSchema } from "../../text/json-schema.ts";
import type { GrammarPlan } from "../../text/xgrammar.ts";

type Constraints = Pick<ChatRequest, "tools" | "toolChoice" | "callable" | "parallelToolCalls" | "format">;

export interface AnswerConstraint {
  /** The caller disposes it. Absent: the answer is unconstrained. */
  readonly grammar?: TokenConstraint;
  /** One sentence for each request that is not enforced. */
  readonly warnings: readonly string[];
}

const anyObject = JSON.stringify({ type: "object" });

/** Throws BAD_SCHEMA with the field at fault, and BAD_REQUEST for an unknown tool. */
export async function constrain(grammars: Grammars, request: Constraints): Promise<AnswerConstraint> {
  const { tools = [], toolChoice = "auto", format } = request;
  const callable = toolChoice === "none" ? [] : callableOf(tools, request);
  const isForced = toolChoice !== "auto";
  // A forced call excludes an answer in the requested format.
  const answer = format && (callable.length === 0 || !isForced) ? formatSchema(format) : undefined;
  if (!answer && !isBound(callable, tools, isForced)) return { warnings: [] };
  const calls = callable.map((one) => argumentsSchema(one, isForced));
  const plan = (wanted: GrammarSchema | undefined, schemas: readonly string[]) =>
    planOf(request, callable, wanted?.text, schemas);
  const texts = calls.map(({ text }) => text);
  const grammar = await grammars.start(plan(answer, texts));
  const given = [...calls, ...(answer ? [answer] : [])];
  if (typeof grammar !== "string") return { grammar, warnings: warningsOf(given) };
  // One schema does not compile: replace those that are not strict and do not compile by any object.
  const proven: GrammarSchema[] = [];
  for (const one of given) proven.push(await compiled(grammars, one));
  const rest = await grammars.start(
    plan(
      answer && proven.at(-1),
      proven.slice(0, calls.length).map(({ text }) => text),
    ),
  );
  if (typeof rest === "string") throw badSchema(answer ? "response_format" : "tools", rest);
  return { grammar: rest, warnings: warningsOf(proven) };
}

/** Whether calls need a grammar although text around them is free: some call must be excluded or checked. */
function isBound(callable: readonly Callable[], tools: readonly Tool[], isForced: boolean): boolean {
  if (callable.length === 0) return false;
  return isForced || callable.length < tools.length || callable.some(({ tool }) => tool.strict);
}

/** A tool that this answer may call, and its index in the request. */
interface Callable {
  readonly tool: Tool;
  readonly index: number;
}

function callableOf(tools: readonly Tool[], { toolChoice, callable }: Constraints): Callable[] {
  const named = typeof toolChoice === "object" ? [toolChoice] : [];
  const unknown = [...named, ...(callable ?? [])].find(
    ({ name }) => !tools.some((tool) => tool.name === name),
  );
  if (unknown) throw noTool(unknown.name);
  return tools.flatMap((tool, index) => {
    const override = callable?.find(({ name }) => name === tool.name);
    if ((callable && !override) || named.some(({ name }) => name !== tool.name)) return [];
    const { parameters = tool.parameters } = override ?? {};
    return [{ tool: { ...tool, parameters }, index }];
  });
}

function noTool(name: string): PocketError {
  return new PocketError("BAD_REQUEST", `'${name}' is none of the tools.`, "tool_choice");
}

function planOf(
  { toolChoice = "auto", parallelToolCalls = true }: Constraints,
  callable: readonly Callable[],
  answer: string | undefined,
  schemas: readonly string[],
): GrammarPlan {
  if (callable.length === 0) return { schemas: [answer!] };
  return {
    schemas,
    frames: callable.map(({ tool }) => ({
      begin: `<tool_call>\n{"name": ${JSON.stringify(tool.name)}, "arguments": `,
      end: "}\n</tool_call>",
    })),
    once: typeof toolChoice === "object" || !parallelToolCalls,
    ...(answer !== undefined && { answer }),
    ...(toolChoice === "auto" && answer === undefined && { free: "<tool_call>" }),
  };
}

/** A schema as it is passed to the grammar. */
interface GrammarSchema {
  readonly text: string;
  /** The request field. */
  readonly field: string;
  /** The client relies on it: it is never replaced. */
  readonly strict: boolean;
  /** Why it was replaced by any object, or which part of it is not enforced. */
  readonly lost?: string;
}

function formatSchema(format: NonNullable<ChatRequest["format"]>): GrammarSchema {
  if (format.type === "json_object") return { text: anyObject, field: "response_format", strict: true };
  return schemaOf(format.schema, "response_format.json_schema.schema", format.strict);
}

/** The arguments of a strict tool, or of any tool in a forced call; any object otherwise. */
function argumentsSchema(
  { tool: { parameters, strict = false }, index }: Callable,
  isForced: boolean,
): GrammarSchema {
  const field = `tools.${index}.function.parameters`;
  if (parameters === undefined || !(strict || isForced)) return { text: anyObject, field, strict: true };
  return schemaOf(parameters, field, strict);
}

function schemaOf(schema: unknown, field: string, strict: boolean): GrammarSchema {
  const fit = grammarSchema(schema);
  if ("text" in fit) {
    const { text, dropped } = fit;
    return { text, field, strict, ...(dropped.length > 0 && { lost: `${dropped.join(", ")} are ignored` }) };
  }
  const at = fit.path === "" ? field : `${field}.${fit.path}`;
  if (strict) throw badSchema(at, fit.sentence);
  return { text: anyObject, field: at, strict, lost: fit.sentence };
}

async function compiled(grammars: Grammars, schema: GrammarSchema): Promise<GrammarSchema> {
  if (schema.text === anyObject) return schema;
  const tried = await grammars.start({ schemas: [schema.text] });
  if (typeof tried !== "string") {
    tried.dispose();
    return schema;
  }
  if (schema.strict) throw badSchema(schema.field, tried);
  return { ...schema, text: anyObject, lost: tried };
}

function warningsOf(wanted: readonly GrammarSchema[]): string[] {
  return wanted.flatMap(({ text, field, lost }) => {
    if (lost === undefined) return [];
    const instead = text === anyObject ? "Any JSON object was allowed there." : "The rest of it is enforced.";
    return [`The schema in ${field} is not enforced as it stands: ${lost}. ${instead}`];
  });
}

function badSchema(field: string, sentence: string): PocketError {
  const { code, detail } = pocketError("BAD_SCHEMA", field, sentence);
  return new PocketError(code, detail, field);
}
