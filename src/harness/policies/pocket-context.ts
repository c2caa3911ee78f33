// The Pocket Context Agent (Yu 2026): a catalog of the compactable blocks ends every request; the agent
// compacts any range at any time and gets the originals back by their tag. This policy never asks for a
// compaction.
import type { ToolCall } from "../../chat/chat.ts";
import { catalogMessage } from "../../context/catalog.ts";
import { compactBlock } from "../../context/compact.ts";
import { Compressor } from "../../context/compressor.ts";
import { expandBlock } from "../../context/expand.ts";
import { compactTool, expandTool } from "../../context/tools.ts";
import type { CallResult, Policy, Turn } from "./policy.ts";

export const pocketContext: Policy = {
  name: "pca",
  prompt: [
    "Your context is limited, and you manage it yourself. Before every answer you see a catalog of the blocks that you may compact, with their sizes.",
    "When part of your work is finished and its details are not needed for the next steps, call compact_block on that range: a summary takes its place and the originals are archived under a tag.",
    "When you need an exact detail that a summary left out, call expand_block with its tag: the originals come back word for word at the end of the context.",
  ].join("\n"),
  tools: [compactTool, expandTool],
  trailer: ({ conversation: { history }, limit, pending }) =>
    catalogMessage(history, { used: history.tokens + pending, limit }),
  call: (call, turn) => (call.name === compactTool.name ? compact(call, turn) : expand(call, turn)),
};

/**
 * Runs compact_block. `form`: the summary has one field per call of the range; see context/summary-form.ts.
 */
export async function compact(call: ToolCall, turn: Turn, form = false): Promise<CallResult> {
  const { conversation, chat, tools, answer, limit, signal, emit } = turn;
  const compressor = new Compressor({ chat, tools, answer });
  const outcome = await compactBlock(call.arguments, { conversation, compressor, limit, form, signal });
  if (outcome.finishes.length > 0) emit({ type: "compressor-finished", finishes: outcome.finishes });
  if (outcome.done) {
    const { memory, replaced, tokens } = outcome.done;
    const { tag, id } = memory;
    emit({
      type: "block-compacted",
      tag,
      memory: id,
      replaced,
      tokensBefore: tokens,
      tokensAfter: memory.tokens,
    });
  }
  return { text: outcome.text };
}

async function expand(call: ToolCall, turn: Turn): Promise<CallResult> {
  const { conversation, limit, pending, reserve, emit } = turn;
  const { text, done } = expandBlock(call.arguments, { conversation, limit, pending: pending + reserve });
  if (!done) return { text };
  const after = () => {
    const copies = done.apply().map(({ id }) => id);
    emit({ type: "block-expanded", tag: done.tag, copies, tokens: done.tokens });
  };
  return { text, tokens: done.tokens, after };
}
