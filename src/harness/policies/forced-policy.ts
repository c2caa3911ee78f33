// A Pocket Context Agent whose every answer is one constrained call, for models too small to manage their
// context. Above a fraction of the window the call is compact_block, with ids from the catalog, and the
// compressor fills in a form. Otherwise it is a call of a workspace tool that was not made yet, such as
// reading a file that was not read; when none remains, any other tool, or `finish`, which ends the task. The
// calls made so far end each request, because compactions remove them from the history. The article's agent
// decides alone, so this policy is off by default and its results are named "+force".
import type { Callable, Message, Tool, ToolCall } from "../../chat/chat.ts";
import type { BlockId, Original } from "../../context/block.ts";
import { catalogOf } from "../../context/catalog.ts";
import type { Conversation } from "../../context/conversation.ts";
import type { History } from "../../context/history.ts";
import { compactTool, expandTool, isContextTool, readArguments } from "../../context/tools.ts";
import type { NudgeOptions } from "./nudge.ts";
import { compact } from "./pocket-context.ts";
import type { Policy, Steering, Turn } from "./policy.ts";

/** Fraction of the window that must fill up before a refused compaction is demanded again. */
const retryFraction = 0.08;
/** Characters of one line in the list of steps, and its number of lines. */
const maxLineLength = 80;
const maxLines = 40;

/** Serves one run: it remembers when it last demanded a compaction. */
export function forced(policy: Policy, { fraction }: NudgeOptions): Policy {
  let demanded = { compactions: -1, used: 0 };
  const isDue = (turn: Turn) => {
    const { history, archive } = turn.conversation;
    if (usedFraction(turn) < fraction || catalogOf(history).length === 0) return false;
    return (
      demanded.compactions !== archive.records.length || usedFraction(turn) >= demanded.used + retryFraction
    );
  };
  return {
    ...policy,
    ...withFinish(policy),
    name: `${policy.name}+force`,
    trailer(turn) {
      if (!isDue(turn)) return stepsMessage(turn.conversation);
      const trailer = policy.trailer(turn);
      return trailer && { ...trailer, content: `${trailer.content}\n${demand}` };
    },
    steer(turn) {
      if (!isDue(turn)) return steerWork(turn);
      demanded = { compactions: turn.conversation.archive.records.length, used: usedFraction(turn) };
      return steerCompaction(turn);
    },
  };
}

const demand =
  "The context is too full to go on. Call compact_block on the blocks that you have finished with.";

function usedFraction({ conversation, pending, limit }: Turn): number {
  return (conversation.history.tokens + pending) / limit;
}

/**
 * Allows a start in the first half of the compactable range and an end in the second half, so that start
 * never follows end and the selection is large.
 */
function steerCompaction({ conversation: { history } }: Turn): Steering {
  const ids = compactableRange(history);
  const half = Math.ceil(ids.length / 2);
  const parameters = objectOf({ start: enumOf(ids.slice(0, half)), end: enumOf(ids.slice(half - 1)) });
  return { toolChoice: { name: compactTool.name }, callable: [{ name: compactTool.name, parameters }] };
}

/**
 * The catalog's range with the most tokens that has no memory in it, because a summary of a summary loses
 * facts. The whole catalog if it has memories only.
 */
function compactableRange(history: History): BlockId[] {
  let [largest, maxTokens]: [BlockId[], number] = [[], 0];
  let [ids, tokens]: [BlockId[], number] = [[], 0];
  for (const entry of catalogOf(history)) {
    if (entry.kind === "memory") [ids, tokens] = [[], 0];
    else [ids, tokens] = [[...ids, entry.id], tokens + entry.tokens];
    if (tokens > maxTokens) [largest, maxTokens] = [ids, tokens];
  }
  return largest.length > 0 ? largest : catalogOf(history).map(({ id }) => id);
}

/** Tools that report remaining calls come first; when none does, every tool except compact_block. */
function steerWork({ conversation, tools, remaining }: Turn): Steering {
  const made = callsMade(conversation);
  const first: Callable[] = [];
  const others: Callable[] = [];
  for (const { name } of tools) {
    const calls = made.filter((call) => call.name === name);
    const left = remaining(
      name,
      calls.map(({ arguments: json }) => json),
    );
    if (name === expandTool.name) others.push(...expandCalls(conversation));
    else if (name === compactTool.name || left === "none") continue;
    else if (left === "any") others.push({ name });
    else first.push({ name, parameters: left.parameters });
  }
  return { toolChoice: "required", callable: first.length > 0 ? first : others, parallelToolCalls: false };
}

/**
 * Allows tags that own calls of workspace tools and were not expanded yet. A tag that compacting copies has
 * made owns none, so an agent cannot expand and compact the same range for ever.
 */
function expandCalls(conversation: Conversation): Callable[] {
  const calls = originalsOf(conversation).flatMap(({ message }) => message.toolCalls ?? []);
  const expanded = calls.filter(({ name }) => name === expandTool.name).map(({ arguments: json }) => json);
  const tags = conversation.archive.records
    .filter(({ tag }) => !expanded.some((json) => json.includes(tag)))
    .filter(({ parts }) => parts.some((part) => part.kind === "owned" && hasWork(part.originals)))
    .map(({ tag }) => tag);
  if (tags.length === 0) return [];
  return [{ name: expandTool.name, parameters: objectOf({ tag: enumOf(tags) }) }];
}

function hasWork(originals: readonly Original[]): boolean {
  return originals.some(({ message }) => message.toolCalls?.some(({ name }) => !isContextTool(name)));
}

/** All calls of the conversation so far, without those of the context tools. */
function callsMade(conversation: Conversation): ToolCall[] {
  return originalsOf(conversation)
    .flatMap(({ message }) => message.toolCalls ?? [])
    .filter(({ name }) => !isContextTool(name));
}

/** All original messages, archived ones included, in order. */
function originalsOf({ history, archive }: Conversation): Original[] {
  const archived = archive.records.flatMap(({ parts }) => parts);
  const originals = [
    ...archived.flatMap((part) => (part.kind === "owned" ? part.originals : [])),
    ...history.blocks.flatMap((block) => (block.kind === "memory" || block.origin ? [] : block.originals)),
  ];
  return originals.sort((one, other) => one.id - other.id);
}

function stepsMessage(conversation: Conversation): Message | undefined {
  const steps = callsMade(conversation).map(({ name, arguments: json }) => `${name} ${json}`);
  if (steps.length === 0) return undefined;
  const lines = [...new Set(steps)]
    .slice(-maxLines)
    .map((line) => (line.length > maxLineLength ? `${line.slice(0, maxLineLength - 1)}…` : line));
  const content = ["[steps done]", ...lines, "Do the next step of the task that is not done yet."];
  return { role: "user", content: content.join("\n") };
}

const finishTool: Tool = {
  name: "finish",
  description: "End the task. Call it when everything that was asked for is done, and not before.",
  parameters: objectOf({ answer: { type: "string", description: "The final answer" } }),
};

/**
 * Adds `finish`, because an agent whose answers are all calls needs one to end its task; compactions use a
 * form.
 */
function withFinish({ tools, call }: Policy): Pick<Policy, "tools" | "call"> {
  return {
    tools: [...tools, finishTool],
    async call(given, turn) {
      if (given.name === compactTool.name) return compact(given, turn, true);
      if (given.name !== finishTool.name) return call(given, turn);
      const read = readArguments(given.arguments, ["answer"]);
      return "refusal" in read ? { text: read.refusal } : { text: "The task ends.", answer: read.answer };
    },
  };
}

/** All properties are required, because a small model fills in every optional one. */
function objectOf(properties: Readonly<Record<string, object>>): object {
  return { type: "object", properties, required: Object.keys(properties), additionalProperties: false };
}

function enumOf(values: readonly string[]): object {
  return { type: "string", enum: values };
}
