// A nudge for the Pocket Context Agent: until the window is fuller than a share the catalog is not shown, from there
// on it is. Asking, it puts a sentence behind the catalog, once between two compactions. Forcing, it also demands a
// call of compact_block there, whose ids can only be such as the catalog has; between such demands every answer is one
// call of another tool, a tool to end the task is among them, and a list of the calls made stands behind the request,
// because a small model that has forgotten its first steps takes them again. This is ours and not the article's, whose agent sees the catalog always and decides
// alone. It is off unless a run asks for it and named in the numbers: small models take a catalog behind every
// request for their task, and seldom compact by themselves.
import { catalogOf } from "../context/catalog.ts";
import type { Message, Tool } from "../context/chat.ts";
import type { Conversation } from "../context/conversation.ts";
import { compactTool, expandTool, readArguments } from "../context/tools.ts";
import type { Policy, Steering, Turn } from "./policy.ts";

export interface NudgeOptions {
  /** Part of the window, between 0 and 1. */
  readonly share: number;
  /** Default: it asks only. */
  readonly force?: boolean;
}

/** A forced call that was refused is demanded again once the window is fuller by this part. */
const again = 0.08;
/** Characters of a step in the list, and steps. */
const lineMost = 80;
const linesMost = 40;

/** A policy for one run: it remembers whether it has asked. Its trailer is the policy's and one sentence more. */
export function nudged(policy: Policy, { share, force = false }: NudgeOptions): Policy {
  let askedAt = -1;
  let askedUsed = 0;
  const used = ({ conversation, pending, limit }: Turn) => (conversation.history.tokens + pending) / limit;
  const isDue = (turn: Turn) => {
    const { history, archive } = turn.conversation;
    if (used(turn) < share || catalogOf(history).length === 0) return false;
    return askedAt !== archive.records.length || (force && used(turn) >= askedUsed + again);
  };
  return {
    ...policy,
    ...(force && finishing(policy)),
    name: `${policy.name}+${force ? "force" : "nudge"}`,
    trailer(turn) {
      const asks = isDue(turn);
      if (force && !asks) return stepsMessage(turn.conversation);
      if (used(turn) < share) return undefined;
      const trailer = policy.trailer(turn);
      return trailer && asks ? { ...trailer, content: `${trailer.content}\n${sentence(turn)}` } : trailer;
    },
    steer(turn) {
      const asks = isDue(turn);
      if (asks) {
        askedAt = turn.conversation.archive.records.length;
        askedUsed = used(turn);
      }
      if (!force) return undefined;
      return asks
        ? compaction(turn)
        : { toolChoice: "required", allowedTools: others(turn), parallelToolCalls: false };
    },
  };
}

function sentence({ conversation: { history }, pending, limit }: Turn): string {
  const ids = catalogOf(history).map(({ id }) => id);
  const percent = Math.round((100 * (history.tokens + pending)) / limit);
  const call = `compact_block {"start": "${ids[0]}", "end": "${ids.at(-1)}"}`;
  return `The context is ${percent} % full. Before you go on, call compact_block on the blocks that you have finished with; for all of them: ${call}.`;
}

/** The range may begin in the first half of the catalog and end in the second, so that it is one, and not a small one. */
function compaction({ conversation: { history } }: Turn): Steering {
  const ids = catalogOf(history).map(({ id }) => id);
  const half = Math.ceil(ids.length / 2);
  const { properties, ...rest } = compactTool.parameters as {
    readonly properties: { readonly [name: string]: object };
  };
  const narrowed = {
    ...properties,
    start: { type: "string", enum: ids.slice(0, half) },
    end: { type: "string", enum: ids.slice(half - 1) },
  };
  return { toolChoice: { name: compactTool.name, parameters: { ...rest, properties: narrowed } } };
}

/** The calls that the conversation has had, archived ones too, each once and in order; undefined without any. */
function stepsMessage({ history, archive }: Conversation): Message | undefined {
  const archived = archive.records.flatMap(({ parts }) => parts);
  const originals = [
    ...archived.flatMap((part) => (part.kind === "owned" ? part.originals : [])),
    ...history.blocks.flatMap((block) => (block.kind === "memory" || block.origin ? [] : block.originals)),
  ];
  const calls = originals
    .sort((one, other) => one.id - other.id)
    .flatMap(({ message }) => message.toolCalls ?? [])
    .filter(({ name }) => name !== compactTool.name && name !== expandTool.name)
    .map(({ name, arguments: json }) => `${name} ${json}`)
    .map((line) => (line.length > lineMost ? `${line.slice(0, lineMost - 1)}…` : line));
  if (calls.length === 0) return undefined;
  const lines = [...new Set(calls)].slice(-linesMost);
  const content = [
    "[steps done]",
    ...lines,
    "These are done; do not do them again. Do the next step of the task.",
  ];
  return { role: "user", content: content.join("\n") };
}

function others({ tools }: Turn): string[] {
  return tools.map(({ name }) => name).filter((name) => name !== compactTool.name);
}

const finishTool: Tool = {
  name: "finish",
  description: "End the task. Call it when everything that was asked for is done, and not before.",
  parameters: {
    type: "object",
    properties: { answer: { type: "string", description: "The final answer" } },
    required: ["answer"],
    additionalProperties: false,
  },
};

/** An agent whose answers are calls ends its task with one. */
function finishing({ tools, call }: Policy): Pick<Policy, "tools" | "call"> {
  return {
    tools: [...tools, finishTool],
    async call(given, turn) {
      if (given.name !== finishTool.name) return call(given, turn);
      const read = readArguments(given.arguments, ["answer"]);
      return "refusal" in read ? { text: read.refusal } : { text: "The task ends.", answer: read.answer };
    },
  };
}
