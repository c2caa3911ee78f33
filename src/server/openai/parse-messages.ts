// Parses messages and tools of the OpenAI shapes into those of src/chat. Content is a string, a list of text parts or
// null; developer becomes system. A part that is not text is refused with its path, because an answer that ignores a
// picture would be wrong.
import type { Message, Tool, ToolCall } from "../../chat/chat.ts";
import { badField } from "./error-response.ts";
import type { WireMessage, WireTool } from "./schemas.ts";

export function parseMessages(wire: readonly WireMessage[]): Message[] {
  return wire.map((message, index) => parseMessage(message, `messages.${index}`));
}

export interface ParsedTools {
  readonly tools: readonly Tool[];
  /** Kinds of tools that the server cannot offer to the model (web_search and the like). */
  readonly skipped: readonly string[];
}

export function parseTools(wire: readonly WireTool[] | null | undefined): ParsedTools {
  const tools: Tool[] = [];
  const skipped: string[] = [];
  for (const [index, tool] of (wire ?? []).entries()) {
    if (tool.type !== "function") {
      skipped.push(tool.type);
      continue;
    }
    if (!tool.function) throw badField(`tools.${index}.function`, "is missing");
    const { name, description, parameters, strict } = tool.function;
    tools.push({
      name,
      ...(description && { description }),
      ...(parameters && { parameters }),
      ...(strict && { strict }),
    });
  }
  return { tools, skipped };
}

function parseMessage(wire: WireMessage, path: string): Message {
  const reasoning = wire.reasoning_content ?? wire.reasoning;
  const toolCalls = (wire.tool_calls ?? []).map(parseToolCall);
  if (toolCalls.length > 0 && wire.role !== "assistant") {
    throw badField(`${path}.tool_calls`, `belongs to assistant messages, not to ${wire.role}`);
  }
  return {
    role: wire.role === "developer" ? "system" : wire.role,
    content: text(wire.content, `${path}.content`),
    ...(reasoning && { reasoning }),
    ...(toolCalls.length > 0 && { toolCalls }),
    ...(wire.tool_call_id && { toolCallId: wire.tool_call_id }),
    ...(wire.name && { name: wire.name }),
  };
}

function text(content: WireMessage["content"], path: string): string {
  if (content === null || content === undefined) return "";
  if (typeof content === "string") return content;
  return content
    .map((part, index) => {
      if (part.type !== "text" && part.type !== "input_text" && part.type !== "output_text") {
        throw badField(`${path}.${index}.type`, `'${part.type}' cannot be read; this model takes text only`);
      }
      if (typeof part.text !== "string") throw badField(`${path}.${index}.text`, "is missing");
      return part.text;
    })
    .join("");
}

function parseToolCall(wire: NonNullable<WireMessage["tool_calls"]>[number], index: number): ToolCall {
  const { name, arguments: wireArguments } = wire.function;
  return {
    id: wire.id ?? `call_${index}`,
    name,
    // Some clients send an empty string for no arguments.
    arguments:
      typeof wireArguments === "string" ? wireArguments || "{}" : JSON.stringify(wireArguments ?? {}),
  };
}
