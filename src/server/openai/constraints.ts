// Reads tool_choice, parallel_tool_calls and response_format of a chat body. Contradictions are refused with the name
// of the field. src/session checks whether a schema can be enforced.
import type { AnswerFormat, ChatRequest, Tool, ToolChoice } from "../../chat/chat.ts";
import { badField } from "./error-response.ts";
import type { ChatBody } from "./schemas.ts";

type Constraints = Pick<ChatRequest, "tools" | "toolChoice" | "callable" | "parallelToolCalls" | "format">;

/**
 * `tools` are those of the body that can be offered. tool_choice none offers none; but a side question on a fork
 * keeps them in its prompt, so that it shares the beginning of the session's, and may only not call them.
 */
export function constraintsOf(body: ChatBody, tools: readonly Tool[]): Constraints {
  const { mode: choice, allowed } = choiceOf(body.tool_choice);
  const silent = choice === "none" && body.pocket?.fork === true && tools.length > 0;
  const offered = choice === "none" && !silent ? [] : tools;
  if (choice === "required" && offered.length === 0)
    throw badField("tool_choice", "needs tools to choose from");
  const named = typeof choice === "object" ? [choice.name] : (allowed ?? []);
  const unknown = named.find((name) => !offered.some((tool) => tool.name === name));
  if (unknown !== undefined)
    throw badField(
      typeof choice === "object" ? "tool_choice.function.name" : "tool_choice",
      `'${unknown}' is none of the tools`,
    );
  const format = formatOf(body.response_format);
  return {
    ...(offered.length > 0 && { tools: offered }),
    ...(choice !== "auto" && (choice !== "none" || silent) && { toolChoice: choice }),
    ...(allowed && { callable: allowed.map((name) => ({ name })) }),
    ...(offered.length > 0 && body.parallel_tool_calls === false && { parallelToolCalls: false }),
    ...(format && { format }),
  };
}

/** `allowed`: names of the tools that may be called; all tools stay in the prompt. */
function choiceOf(wire: ChatBody["tool_choice"]): { mode: ToolChoice; allowed?: string[] } {
  if (typeof wire !== "object" || wire === null) return { mode: wire ?? "auto" };
  if (wire.type === "function") return { mode: { name: wire.function.name } };
  const { mode, tools } = wire.allowed_tools;
  return { mode, allowed: tools.map((tool) => tool.function.name) };
}

function formatOf(wire: ChatBody["response_format"]): AnswerFormat | undefined {
  const type = wire?.type ?? "text";
  if (type === "text") return undefined;
  if (type === "json_object") return { type };
  if (type !== "json_schema") {
    throw badField("response_format.type", `'${type}' is not served; text, json_object and json_schema are`);
  }
  const schema = wire?.json_schema?.schema;
  if (!schema) throw badField("response_format.json_schema.schema", "is missing");
  return { type, schema, strict: wire.json_schema?.strict === true };
}
