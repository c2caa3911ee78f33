// expand_block: appends copies of the archived messages of a tag to the history, under new ids. The tool only
// reports what will be appended. `apply` appends it after the exchange that called the tool, because an
// exchange is never split.
import type { Block } from "./block.ts";
import { formatTokens } from "./catalog.ts";
import type { Conversation } from "./conversation.ts";
import { isTag, labelOf, type Tag } from "./tag.ts";
import { type Refusal, readArguments, type ToolOutcome } from "./tools.ts";

/** Options of expandBlock. */
export interface ExpandOptions {
  readonly conversation: Conversation;
  /** The window in tokens. */
  readonly limit: number;
  /** Tokens needed in addition to the history and the copies: the open exchange and the next answer. */
  readonly pending: number;
}

/** An expansion that is allowed and not yet applied. */
export interface Expansion {
  readonly tag: Tag;
  /** Tags that the range refers to. They are not expanded. */
  readonly refs: readonly Tag[];
  /** Tokens of the copies. */
  readonly tokens: number;
  /** Appends the copies. Call once, after the exchange is appended. Throws errors of the journal. */
  apply(): Block[];
}

/**
 * Checks one call of expand_block; `done.apply()` carries it out. `json`: the arguments as the model wrote
 * them.
 */
export function expandBlock(json: string, options: ExpandOptions): ToolOutcome<Expansion> {
  const call = readArguments(json, ["tag"]);
  if ("refusal" in call) return { text: call.refusal };
  const { conversation, limit, pending } = options;
  const recalled = isTag(call.tag) ? conversation.archive.recall(call.tag) : undefined;
  if (!recalled) return { text: unknownTag(conversation, call.tag).refusal };
  const tag = call.tag as Tag;
  const { blocks, refs } = recalled;
  if (blocks.length === 0) {
    return {
      text: `${labelOf(tag, refs)} holds no messages of its own. Expand ${refs.join(" or ")} instead.`,
    };
  }
  const copies = conversation.copies(blocks);
  const tokens = copies.reduce((sum, copy) => sum + copy.tokens, 0);
  const used = conversation.history.tokens + pending;
  if (used + tokens > limit) {
    return {
      text: `Nothing was expanded: ${tag} has ${formatTokens(tokens)} tokens, ${formatTokens(used)} of ${formatTokens(limit)} are in use or needed, so ${formatTokens(used + tokens - limit)} are missing. Compact other blocks first.`,
    };
  }
  const rest = refs.length > 0 ? ` It refers to ${refs.join(", ")}, which you can expand too.` : "";
  const text = `${tag}: ${blocks.length === 1 ? "1 block" : `${blocks.length} blocks`} (${formatTokens(tokens)} tokens) follow at the end of the context, word for word.${rest}`;
  return { text, done: { tag, refs, tokens, apply: () => conversation.expand(blocks) } };
}

function unknownTag({ archive }: Conversation, tag: string): Refusal {
  const { tags } = archive;
  const known = tags.length > 0 ? `Tags: ${tags.join(", ")}.` : "Nothing has been compacted yet.";
  return { refusal: `Nothing was expanded: there is no tag '${tag}'. ${known}` };
}
