// compact_block: replaces a range of blocks by a memory and archives the originals. The selection is checked
// before the compressor is called, and the summary before anything changes. Refusals are text for the model,
// with the numbers.
import { isErrorCode, PocketError } from "../errors.ts";
import { type BlockId, isBlockId, messagesOf, tokensOf } from "./block.ts";
import { blockLabel, catalogOf, formatTokens, protection } from "./catalog.ts";
import { type Compression, type CompressionTask, type Compressor, instruction } from "./compressor.ts";
import type { Compaction, Conversation, Range } from "./conversation.ts";
import { fieldsOf } from "./summary-form.ts";
import { labelOf } from "./tag.ts";
import { type Refusal, readArguments, type ToolOutcome } from "./tools.ts";

/** Options of compactBlock. */
export interface CompactOptions {
  readonly conversation: Conversation;
  readonly compressor: Pick<Compressor, "compress">;
  /** The window in tokens. The prompt and the answer of the compressor must fit in it. */
  readonly limit: number;
  /** Constrain the summary to a form with a field per call; see summary-form.ts. Default: false. */
  readonly form?: boolean;
  readonly signal?: AbortSignal;
}

/** A compaction that was done. */
export interface Compacted extends Compaction {
  /** Indices in the history before the compaction. */
  readonly range: Range;
  /** The calls of the compressor, with their costs. */
  readonly finishes: Compression["finishes"];
}

/** Result of compactBlock. `done` is absent if it refused. */
export interface CompactOutcome extends ToolOutcome<Compacted> {
  /** The calls of the compressor with their costs, also if nothing was compacted. */
  readonly finishes: Compression["finishes"];
}

/** A summary may have a quarter of the tokens that it replaces, within these limits. */
const summaryTokens = { min: 64, max: 1024, maxWindowFraction: 1 / 16 };
/** Characters of the latest request in the instruction of the compressor. */
const maxRequestLength = 300;
/** Operating errors after which the conversation can continue without this compaction. */
const recoverableErrors: readonly string[] = [
  "CONTEXT_LENGTH_EXCEEDED",
  "CACHE_FULL",
  "CACHE_TOO_SMALL",
  "QUEUE_FULL",
];

/**
 * Runs one call of compact_block. `json`: the arguments as the model wrote them. A refusal changes nothing.
 * Rejects with operating errors of the Chat and the journal, and then has changed nothing either.
 */
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

/** The range between two block ids, or why it cannot be compacted. Changes nothing. */
export function selectRange({ history, archive }: Conversation, start: string, end: string): Range | Refusal {
  const indices: number[] = [];
  for (const id of [start, end]) {
    const index = isBlockId(id) ? history.indexOf(id) : -1;
    if (index < 0) {
      const tag = isBlockId(id) ? archive.tagOfBlock(id) : undefined;
      const why = tag
        ? `${id} was compacted into ${tag}; expand_block brings it back`
        : `there is no block '${id}'`;
      return { refusal: `Nothing was compacted: ${why}. ${alternatives(history)}` };
    }
    indices.push(index);
  }
  const [first, last] = indices as [number, number];
  if (first > last) {
    return {
      refusal: `Nothing was compacted: ${start} stands behind ${end} in the current order. ${alternatives(history)}`,
    };
  }
  const { blocks } = history;
  for (let index = first; index <= last; index++) {
    const why = protection(blocks, index);
    if (why)
      return {
        refusal: `Nothing was compacted: ${blocks[index]!.id} ${why}, which is protected. ${alternatives(history)}`,
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
  const { min, max, maxWindowFraction } = summaryTokens;
  const maxTokens = Math.max(
    min,
    Math.min(max, Math.floor(limit * maxWindowFraction), Math.floor(tokens / 4)),
  );
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

/**
 * The beginning of the latest request. The instruction repeats it, because a small model attends to its last
 * message.
 */
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
    if (!(cause instanceof PocketError && isErrorCode(cause.code) && recoverableErrors.includes(cause.code)))
      throw cause;
    return { refusal: `Nothing was compacted: ${cause.detail} The history is unchanged.` };
  }
}

function noGain(range: { start: string; end: string }, tokens: number, memoryTokens: number): Refusal {
  return {
    refusal: `Nothing was compacted: ${range.start} to ${range.end} have ${formatTokens(tokens)} tokens and the memory would have ${formatTokens(memoryTokens)}, so nothing would be gained. Select more blocks.`,
  };
}

/** Which blocks can be compacted instead. */
function alternatives(history: Conversation["history"]): string {
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
