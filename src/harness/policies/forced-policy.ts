// A Pocket Context Agent whose every answer is a call, for models too small to manage a context by themselves. Where
// the window is fuller than a share, that call is compact_block, on ids that the catalog has, and its compressor fills
// in a form; elsewhere it is any other tool, those first that know of something no call was about, a file not read, and
// `finish` ends the task. The calls made stand behind each request, since compactions take them out of sight. This is
// ours and not the article's, whose agent decides alone; it is off unless a run asks for it, and named in the numbers.

import type { Callable, Message, Tool, ToolCall } from "../../chat/chat.ts";
import type { BlockId, Original } from "../../context/block.ts";
import { catalogOf } from "../../context/catalog.ts";
import type { Conversation } from "../../context/conversation.ts";
import type { History } from "../../context/history.ts";
import { compactTool, expandTool, readArguments } from "../../context/tools.ts";
import type { NudgeOptions } from "./nudge.ts";
import { compact } from "./pocket-context.ts";
import type { Policy, Steering, Turn } from "./policy.ts";

/** A compaction that was refused is demanded again once the window is fuller by this part. */
const again = 0.08;
/** Characters of a step in the list, and steps. */
const maxLineLength = 80;
const maxLines = 40;

/** A policy for one run: it remembers when it demanded a compaction. */
export function forced(policy: Policy, { share }: NudgeOptions): Policy {
  let demanded = { compactions: -1, used: 0 };
  const isDue = (turn: Turn) => {
    const { history, archive } = turn.conversation;
    if (usedPart(turn) < share || catalogOf(history).length === 0) return false;
    return demanded.compactions !== archive.records.length || usedPart(turn) >= demanded.used + again;
  };
  return {
    ...policy,
    ...finishing(policy),
    name: `${policy.name}+force`,
    trailer(turn) {
      if (!isDue(turn)) return stepsMessage(turn.conversation);
      const trailer = policy.trailer(turn);
      return trailer && { ...trailer, content: `${trailer.content}\n${demand}` };
    },
    steer(turn) {
      if (!isDue(turn)) return work(turn);
      demanded = { compactions: turn.conversation.archive.records.length, used: usedPart(turn) };
      return compaction(turn);
    },
  };
}

const demand =
  "The context is too full to go on. Call compact_block on the blocks that you have finished with.";

function usedPart({ conversation, pending, limit }: Turn): number {
  return (conversation.history.tokens + pending) / limit;
}

/** The range may begin in the first half of the stretch and end in the second, so that it is one, and not a small one. */
function compaction({ conversation: { history } }: Turn): Steering {
  const ids = stretchOf(history);
  const half = Math.ceil(ids.length / 2);
  const ranges = { start: ids.slice(0, half), end: ids.slice(half - 1) };
  const parameters = objectOf({ start: enumOf(ranges.start), end: enumOf(ranges.end) });
  return { toolChoice: { name: compactTool.name }, callable: [{ name: compactTool.name, parameters }] };
}

/** The most tokens of the catalog without a memory between them: what was summarized twice is soon lost. */
function stretchOf(history: History): BlockId[] {
  let [longest, most]: [BlockId[], number] = [[], 0];
  let [ids, tokens]: [BlockId[], number] = [[], 0];
  for (const entry of catalogOf(history)) {
    if (entry.kind === "memory") [ids, tokens] = [[], 0];
    else [ids, tokens] = [[...ids, entry.id], tokens + entry.tokens];
    if (tokens > most) [longest, most] = [ids, tokens];
  }
  return longest.length > 0 ? longest : catalogOf(history).map(({ id }) => id);
}

/** As long as a tool knows of something that no call was about: that; then every tool but compact_block. */
function work({ conversation, tools, fresh }: Turn): Steering {
  const made = callsMade(conversation);
  const unseen: Callable[] = [];
  const rest: Callable[] = [];
  for (const { name } of tools) {
    const calls = made.filter((call) => call.name === name);
    const left = fresh(
      name,
      calls.map(({ arguments: json }) => json),
    );
    if (name === expandTool.name) rest.push(...expansion(conversation));
    else if (name === compactTool.name || left === "none") continue;
    else if (left === "any") rest.push({ name });
    else unseen.push({ name, parameters: left.parameters });
  }
  return { toolChoice: "required", callable: unseen.length > 0 ? unseen : rest, parallelToolCalls: false };
}

/**
 * Tags that own work and were not expanded yet: each once, and none that compacting copies has made, or an agent could
 * expand and compact the same range for ever.
 */
function expansion(conversation: Conversation): Callable[] {
  const calls = originalsOf(conversation).flatMap(({ message }) => message.toolCalls ?? []);
  const expanded = calls.filter(({ name }) => name === expandTool.name).map(({ arguments: json }) => json);
  const tags = conversation.archive.records
    .filter(({ tag }) => !expanded.some((json) => json.includes(tag)))
    .filter(({ parts }) => parts.some((part) => part.kind === "owned" && isWork(part.originals)))
    .map(({ tag }) => tag);
  if (tags.length === 0) return [];
  return [{ name: expandTool.name, parameters: objectOf({ tag: enumOf(tags) }) }];
}

function isWork(originals: readonly Original[]): boolean {
  return originals.some(({ message }) => message.toolCalls?.some(({ name }) => !isOfContext(name)));
}

function isOfContext(name: string): boolean {
  return name === compactTool.name || name === expandTool.name;
}

/** The calls that the conversation has had, those for the context left out. */
function callsMade(conversation: Conversation): ToolCall[] {
  return originalsOf(conversation)
    .flatMap(({ message }) => message.toolCalls ?? [])
    .filter(({ name }) => !isOfContext(name));
}

/** All messages there were, archived ones too, in order. */
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

/** An agent whose answers are calls ends its task with one, and its compressor fills in a form. */
function finishing({ tools, call }: Policy): Pick<Policy, "tools" | "call"> {
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

/** All properties are required: a small model fills in whatever it may. */
function objectOf(properties: Readonly<Record<string, object>>): object {
  return { type: "object", properties, required: Object.keys(properties), additionalProperties: false };
}

function enumOf(values: readonly string[]): object {
  return { type: "string", enum: values };
}
