// expand_block: the archived messages of a tag come back at the end of the history, word for word, as copies
// under fresh ids. The tool says what will come; the copies are appended by `apply` once the exchange that
// called it is whole, because an exchange is never split.
import type { Block } from "./block.ts";
import { formatTokens } from "./catalog.ts";
import type { Conversation } from "./conversation.ts";
import { isTag, labelOf, type Tag } from "./tag.ts";
import { type Refusal, readArguments, type ToolOutcome } from "./tools.ts";

export interface ExpandOptions {
  readonly conversation: Conversation;
  /** The window in tokens. */
  readonly limit: number;
  /** Tokens that will be in use beside the history when the copies come: the open exchange, the next answer. */
  readonly pending: number;
}

export interface Expansion {
  readonly tag: Tag;
  /** What the range referred to; it is not expanded. */
  readonly refs: readonly Tag[];
  /** Tokens of the copies. */
  readonly tokens: number;
  /** Appends the copies; to be called once, behind the exchange. Throws what the journal throws. */
  apply(): Block[];
}

/** Changes nothing: `done.apply()` does. */
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
