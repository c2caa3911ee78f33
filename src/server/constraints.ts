// What a chat body says about calls and the form of the answer, into house types: tool_choice,
// parallel_tool_calls, response_format. What contradicts itself is refused by its field; whether a schema can be
// enforced is found out behind the Chat port.
import type { AnswerFormat, ChatRequest, Tool } from "../context/chat.ts";
import { badField } from "./errors.ts";
import type { ChatBody } from "./schemas.ts";

type Constraints = Pick<ChatRequest, "tools" | "toolChoice" | "parallelToolCalls" | "format">;

/**
 * `tools` are those of the body that can be offered. tool_choice none offers none; but a side question on a fork
 * keeps them in its prompt, so that it shares the beginning of the session's, and may only not call them.
 */
export function constraintsOf(body: ChatBody, tools: readonly Tool[]): Constraints {
  const choice = body.tool_choice ?? "auto";
  const silent = choice === "none" && body.pocket?.fork === true && tools.length > 0;
  const offered = choice === "none" && !silent ? [] : tools;
  if (choice === "required" && offered.length === 0)
    throw badField("tool_choice", "needs tools to choose from");
  if (typeof choice === "object" && !offered.some(({ name }) => name === choice.function.name)) {
    throw badField("tool_choice.function.name", `'${choice.function.name}' is none of the tools`);
  }
  const format = formatOf(body.response_format);
  if (format && offered.length > 0) {
    throw badField(
      "response_format",
      "is not served together with tools; send tool_choice none or leave one out",
    );
  }
  return {
    ...(offered.length > 0 && { tools: offered }),
    ...((choice === "required" || silent) && { toolChoice: silent ? "none" : "required" }),
    ...(typeof choice === "object" && { toolChoice: { name: choice.function.name } }),
    ...(offered.length > 0 && body.parallel_tool_calls === false && { parallelToolCalls: false }),
    ...(format && { format }),
  };
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
