// A tool of an agent and one call of it. Whatever goes wrong inside a tool is a text for the model, which can
// try something else; only the end of the run passes through.
import type { Tool, ToolCall } from "../chat/chat.ts";
import { PocketError } from "../errors.ts";

export interface AgentTool {
  readonly spec: Tool;
  /** `json`: the arguments as the model wrote them. What it throws is told to the model. */
  run(json: string, signal: AbortSignal): Promise<string>;
  /** For an agent that is led: which calls it has not made yet. `made`: arguments of earlier calls. Absent: any. */
  fresh?(made: readonly string[]): Fresh;
}

/** any: as the tool says; none: all were made; else parameters that leave out what was done. */
export type Fresh = "any" | "none" | { readonly parameters: unknown };

/** The result for the model. Rejects only when `signal` is aborted, with its reason. */
export async function runTool(
  tools: readonly AgentTool[],
  call: ToolCall,
  signal: AbortSignal,
): Promise<string> {
  const tool = tools.find(({ spec }) => spec.name === call.name);
  if (!tool) {
    const names = tools.map(({ spec }) => spec.name).join(", ") || "none";
    return `There is no tool '${call.name}'. Tools of the workspace: ${names}.`;
  }
  try {
    const text = await tool.run(call.arguments, signal);
    signal.throwIfAborted();
    return text;
  } catch (cause) {
    signal.throwIfAborted();
    return `${call.name} failed: ${cause instanceof Error ? cause.message : String(cause)}`;
  }
}

/** Those of the names, in their order; all without names. Throws BAD_CONFIG for a name that no tool has. */
export function chosenTools(tools: readonly AgentTool[], names?: readonly string[]): readonly AgentTool[] {
  if (!names) return tools;
  return names.map((name) => {
    const tool = tools.find(({ spec }) => spec.name === name);
    if (tool) return tool;
    const known = tools.map(({ spec }) => spec.name).join(", ") || "none";
    throw new PocketError("BAD_CONFIG", `There is no tool '${name}' for this run; there are: ${known}.`);
  });
}
