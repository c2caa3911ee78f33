// What an answer is constrained to, as a plan for a grammar: a forced tool call, strict arguments, JSON of a schema, a
// call or else such JSON. Decides which schemas count and what becomes of those that no grammar can be made of: refused
// where the client relies on them, else any object and a warning. It walks no grammar.
import type { ChatRequest, Tool } from "../../chat/chat.ts";
import { PocketError, pocketError } from "../../errors.ts";
import type { Grammars, TokenConstraint } from "../../text/grammar.ts";
import { grammarSchema } from "../../text/json-schema.ts";
import type { GrammarPlan } from "../../text/xgrammar.ts";

type Constraints = Pick<ChatRequest, "tools" | "toolChoice" | "callable" | "parallelToolCalls" | "format">;

export interface AnswerConstraint {
  /** To be disposed by the caller. Absent: the answer is free. */
  readonly grammar?: TokenConstraint;
  /** What was asked for and is not enforced, a sentence each. */
  readonly warnings: readonly string[];
}

const anyObject = JSON.stringify({ type: "object" });

/** Throws BAD_SCHEMA with the field at fault, and BAD_REQUEST for a choice of no tool. */
export async function constrain(grammars: Grammars, request: Constraints): Promise<AnswerConstraint> {
  const { tools = [], toolChoice = "auto", format } = request;
  const callable = toolChoice === "none" ? [] : callableOf(tools, request);
  const isForced = toolChoice !== "auto";
  // Calls that are forced leave no room for another form.
  const answer = format && (callable.length === 0 || !isForced) ? formatSchema(format) : undefined;
  if (!answer && !isBound(callable, tools, isForced)) return { warnings: [] };
  const calls = callable.map((one) => argumentsSchema(one, isForced));
  const plan = (wanted: Wanted | undefined, schemas: readonly string[]) =>
    planOf(request, callable, wanted?.text, schemas);
  const texts = calls.map(({ text }) => text);
  const grammar = await grammars.start(plan(answer, texts));
  const given = [...calls, ...(answer ? [answer] : [])];
  if (typeof grammar !== "string") return { grammar, warnings: warningsOf(given) };
  // One of them is to blame: those that nobody relies on give way.
  const proven: Wanted[] = [];
  for (const one of given) proven.push(await provenOf(grammars, one));
  const rest = await grammars.start(
    plan(
      answer && proven.at(-1),
      proven.slice(0, calls.length).map(({ text }) => text),
    ),
  );
  if (typeof rest === "string") throw badSchema(answer ? "response_format" : "tools", rest);
  return { grammar: rest, warnings: warningsOf(proven) };
}

/** Free text around calls needs a grammar only where some call would be wrong. */
function isBound(callable: readonly Callable[], tools: readonly Tool[], isForced: boolean): boolean {
  if (callable.length === 0) return false;
  return isForced || callable.length < tools.length || callable.some(({ tool }) => tool.strict);
}

/** A tool that this answer may call, and its place in the request. */
interface Callable {
  readonly tool: Tool;
  readonly place: number;
}

function callableOf(tools: readonly Tool[], { toolChoice, callable }: Constraints): Callable[] {
  const named = typeof toolChoice === "object" ? [toolChoice] : [];
  const unknown = [...named, ...(callable ?? [])].find(
    ({ name }) => !tools.some((tool) => tool.name === name),
  );
  if (unknown) throw noTool(unknown.name);
  return tools.flatMap((tool, place) => {
    const narrower = callable?.find(({ name }) => name === tool.name);
    if ((callable && !narrower) || named.some(({ name }) => name !== tool.name)) return [];
    const { parameters = tool.parameters } = narrower ?? {};
    return [{ tool: { ...tool, parameters }, place }];
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

/** A schema as the grammar gets it. */
interface Wanted {
  readonly text: string;
  /** Where the client wrote it. */
  readonly field: string;
  /** The client relies on it, so it never gives way. */
  readonly strict: boolean;
  /** Why any object stands in its place, or what of it is not enforced. */
  readonly lost?: string;
}

function formatSchema(format: NonNullable<ChatRequest["format"]>): Wanted {
  if (format.type === "json_object") return { text: anyObject, field: "response_format", strict: true };
  return wantedOf(format.schema, "response_format.json_schema.schema", format.strict);
}

/** Of a strict tool, and of any in a forced call. */
function argumentsSchema(
  { tool: { parameters, strict = false }, place }: Callable,
  isForced: boolean,
): Wanted {
  const field = `tools.${place}.function.parameters`;
  if (parameters === undefined || !(strict || isForced)) return { text: anyObject, field, strict: true };
  return wantedOf(parameters, field, strict);
}

function wantedOf(schema: unknown, field: string, strict: boolean): Wanted {
  const fit = grammarSchema(schema);
  if ("text" in fit) {
    const { text, dropped } = fit;
    return { text, field, strict, ...(dropped.length > 0 && { lost: `${dropped.join(", ")} are ignored` }) };
  }
  const at = fit.path === "" ? field : `${field}.${fit.path}`;
  if (strict) throw badSchema(at, fit.sentence);
  return { text: anyObject, field: at, strict, lost: fit.sentence };
}

async function provenOf(grammars: Grammars, wanted: Wanted): Promise<Wanted> {
  if (wanted.text === anyObject) return wanted;
  const tried = await grammars.start({ schemas: [wanted.text] });
  if (typeof tried !== "string") {
    tried.dispose();
    return wanted;
  }
  if (wanted.strict) throw badSchema(wanted.field, tried);
  return { ...wanted, text: anyObject, lost: tried };
}

function warningsOf(wanted: readonly Wanted[]): string[] {
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
