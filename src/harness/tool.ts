// A tool of an agent, and one call of it. Every failure inside a tool becomes a text for the model, which can
// then try something else; only an abort rejects.
import type { Tool, ToolCall } from "../chat/chat.ts";
import { PocketError } from "../errors.ts";

export interface AgentTool {
  readonly spec: Tool;
  /**
   * `json`: the arguments as the model wrote them. The message of a thrown error is the result for the model.
   */
  run(json: string, signal: AbortSignal): Promise<string>;
  /** For the forced policy: the calls that remain. `made`: arguments of earlier calls. Absent: "any". */
  remaining?(made: readonly string[]): RemainingCalls;
}

/** any: all that the spec allows; none: all calls were made; otherwise parameters without the calls made. */
export type RemainingCalls = "any" | "none" | { readonly parameters: unknown };

/** The result for the model. Rejects only when `signal` is aborted, with its reason. */
export async function runTool(
  tools: readonly AgentTool[],
  call: ToolCall,
  signal: AbortSignal,
): Promise<string> {
  const tool = tools.find(({ spec }) => spec.name === call.name);
  if (!tool) return `There is no tool '${call.name}'. Tools of the workspace: ${namesOf(tools)}.`;
  try {
    const text = await tool.run(call.arguments, signal);
    signal.throwIfAborted();
    return text;
  } catch (cause) {
    signal.throwIfAborted();
    return `${call.name} failed: ${cause instanceof Error ? cause.message : String(cause)}`;
  }
}

/**
 * The tools with these names, in the order of the names; all without names. Throws BAD_CONFIG for an unknown
 * name.
 */
export function chosenTools(tools: readonly AgentTool[], names?: readonly string[]): readonly AgentTool[] {
  if (!names) return tools;
  return names.map((name) => {
    const tool = tools.find(({ spec }) => spec.name === name);
    if (tool) return tool;
    throw new PocketError(
      "BAD_CONFIG",
      `There is no tool '${name}' for this run; there are: ${namesOf(tools)}.`,
    );
  });
}

function namesOf(tools: readonly AgentTool[]): string {
  return tools.map(({ spec }) => spec.name).join(", ") || "none";
}
