// compact_block: a range of blocks becomes one memory, its originals the archive's. Everything that can be
// wrong with a selection is found before the compressor is called, everything that can be wrong with a summary
// before anything is changed, and told to the model as text with the numbers.
import { isErrorCode, PocketError } from "../errors.ts";
import { type BlockId, isBlockId, messagesOf, tokensOf } from "./block.ts";
import { blockLabel, catalogOf, formatTokens, protection } from "./catalog.ts";
import { type Compression, type CompressionTask, type Compressor, instruction } from "./compressor.ts";
import type { Compaction, Conversation, Range } from "./conversation.ts";
import { fieldsOf } from "./summary-form.ts";
import { labelOf } from "./tag.ts";
import { type Refusal, readArguments, type ToolOutcome } from "./tools.ts";

export interface CompactOptions {
  readonly conversation: Conversation;
  readonly compressor: Pick<Compressor, "compress">;
  /** The window in tokens: the compressor's prompt and answer have to fit in it. */
  readonly limit: number;
  /** Whether the summary is to be a form with a field per call; see summary-form.ts. Default: false. */
  readonly form?: boolean;
  readonly signal?: AbortSignal;
}

/** `finishes`: what the compressor's calls cost. */
export interface Compacted extends Compaction {
  readonly range: Range;
  readonly finishes: Compression["finishes"];
}

export interface CompactOutcome extends ToolOutcome<Compacted> {
  /** What the compressor's calls cost, also when nothing came of them. */
  readonly finishes: Compression["finishes"];
}

/** A summary may have a quarter of what it replaces, between these; and no more than this part of the window. */
const summaryTokens = { least: 64, most: 1024, windowPart: 1 / 16 };
/** Characters of the request that a compressor is reminded of. */
const maxRequestLength = 300;
/** Operating errors that say that this call was too much now; the conversation can go on without it. */
const passing: readonly string[] = ["CONTEXT_LENGTH_EXCEEDED", "CACHE_FULL", "CACHE_TOO_SMALL", "QUEUE_FULL"];

/** `json`: the arguments as the model wrote them. Rejects with operating errors of the Chat and the journal. */
export async function compactBlock(json: string, options: CompactOptions): Promise<CompactOutcome> {
  const call = readArguments(json, ["start", "end"], ["focus"]);
  if ("refusal" in call) return refused(call);
  const range = selectRange(options.conversation, call.start, call.end);
  if ("refusal" in range) return refused(range);
  const task = taskOf(options, range, call.focus);
  if ("refusal" in task) return refused(task);

  const compression = await compress(options, task);
  if ("refusal" in compression) return refused(compression);
  const { summary, faults, finishes } = compression;
  if (summary === undefined) {
    const text = `Nothing was compacted: the compressor's answer ${faults.join(", and the next one ")}. The history is unchanged. Try a smaller range, or go on.`;
    return { text, finishes };
  }
  const { conversation } = options;
  const { tokens, memory } = conversation.plan(range, summary);
  if (memory.tokens >= tokens) return refused(noGain(call, tokens, memory.tokens), finishes);
  const done = { ...conversation.compact(range, summary), range, finishes };
  return { text: report(done), done, finishes };
}

/** The places of the range, or what is wrong with it. Changes nothing. */
export function selectRange({ history, archive }: Conversation, start: string, end: string): Range | Refusal {
  const places: number[] = [];
  for (const id of [start, end]) {
    const place = isBlockId(id) ? history.indexOf(id) : -1;
    if (place < 0) {
      const tag = isBlockId(id) ? archive.tagOfBlock(id) : undefined;
      const why = tag
        ? `${id} was compacted into ${tag}; expand_block brings it back`
        : `there is no block '${id}'`;
      return { refusal: `Nothing was compacted: ${why}. ${offer(history)}` };
    }
    places.push(place);
  }
  const [first, last] = places as [number, number];
  if (first > last) {
    return {
      refusal: `Nothing was compacted: ${start} stands behind ${end} in the current order. ${offer(history)}`,
    };
  }
  const { blocks } = history;
  for (let place = first; place <= last; place++) {
    const why = protection(blocks, place);
    if (why)
      return {
        refusal: `Nothing was compacted: ${blocks[place]!.id} ${why}, which is protected. ${offer(history)}`,
      };
  }
  return { start: first, end: last + 1 };
}

function taskOf(
  { conversation, limit, form, signal }: CompactOptions,
  { start, end }: Range,
  focus: string | undefined,
): CompressionTask | Refusal {
  const { history } = conversation;
  const blocks = history.blocks.slice(start, end);
  const first = blocks[0]!;
  const last = blocks.at(-1)!;
  const range = { start: first.id, end: last.id };
  const { tokens, memory } = conversation.plan({ start, end }, "");
  if (memory.tokens >= tokens) return noGain(range, tokens, memory.tokens);
  const { least, most, windowPart } = summaryTokens;
  const maxTokens = Math.max(least, Math.min(most, Math.floor(limit * windowPart), Math.floor(tokens / 4)));
  const fields = form ? fieldsOf(blocks) : [];
  const about = {
    opening: blockLabel(first),
    request: requestOf(history),
    focus,
    maxTokens,
    ...(fields.length > 0 ? { fields } : {}),
  };
  const messages = history.messages(end);
  const prompt = tokensOf(messages, history.count) + history.count(instruction(about));
  if (prompt + maxTokens > limit) {
    return {
      refusal: `Nothing was compacted: the compressor would read ${formatTokens(prompt)} tokens and needs ${formatTokens(maxTokens)} for its answer; the window has ${formatTokens(limit)}. Compact a range that ends earlier first.`,
    };
  }
  return { messages, ...about, signal };
}

/** The beginning of the latest request: a small model looks no further back than its last message. */
function requestOf({ blocks }: Conversation["history"]): string | undefined {
  const block = blocks.findLast((one) => one.kind === "request" && !one.origin);
  const text = block && messagesOf(block)[0]!.content.replace(/\s+/g, " ").trim();
  if (!text) return undefined;
  return text.length > maxRequestLength ? `${text.slice(0, maxRequestLength)}…` : text;
}

async function compress(options: CompactOptions, task: CompressionTask): Promise<Compression | Refusal> {
  try {
    return await options.compressor.compress(task);
  } catch (cause) {
    if (!(cause instanceof PocketError && isErrorCode(cause.code) && passing.includes(cause.code)))
      throw cause;
    return { refusal: `Nothing was compacted: ${cause.detail} The history is unchanged.` };
  }
}

function noGain(range: { start: string; end: string }, tokens: number, memoryTokens: number): Refusal {
  return {
    refusal: `Nothing was compacted: ${range.start} to ${range.end} have ${formatTokens(tokens)} tokens and the memory would have ${formatTokens(memoryTokens)}, so nothing would be gained. Select more blocks.`,
  };
}

function offer(history: Conversation["history"]): string {
  const ids: BlockId[] = catalogOf(history).map(({ id }) => id);
  if (ids.length === 0) return "No block can be compacted now.";
  return `Blocks that can be compacted, in order: ${ids.join(", ")}.`;
}

function refused({ refusal }: Refusal, finishes: Compression["finishes"] = []): CompactOutcome {
  return { text: refusal, finishes };
}

function report({ replaced, tokens, memory }: Compaction): string {
  const range = replaced.length === 1 ? replaced[0] : `${replaced[0]} to ${replaced.at(-1)}`;
  return `${range} (${formatTokens(tokens)} tokens) are now ${memory.id}, ${labelOf(memory.tag, memory.refs)} (${formatTokens(memory.tokens)} tokens). expand_block {"tag": "${memory.tag}"} brings the originals back.`;
}
