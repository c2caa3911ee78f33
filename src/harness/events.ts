// What an agent loop tells whoever watches: noun-verb events in the order of their happening. A terminal view,
// a stream over HTTP and the events of a stored run are all made of these; nothing is steered by them.

import type { ToolCall } from "../chat/chat.ts";
import type { Block, BlockId } from "../context/block.ts";
import type { AnswerFinished } from "../context/collect-answer.ts";
import type { Tag } from "../context/tag.ts";
import type { Usage } from "./usage.ts";

/**
 * answered: the agent ended by itself. forced: the window or the turns were spent, and it was told to answer.
 * overflow: the server refused the prompt as too long; the answer is the last text there was.
 */
export type Outcome = "answered" | "forced" | "overflow";

export type AgentEvent =
  /** `used`: tokens of the next prompt, as counted here; `limit`: the window. */
  | { readonly type: "turn-started"; readonly turn: number; readonly used: number; readonly limit: number }
  | { readonly type: "text-delta"; readonly text: string }
  /** An answer that was not kept: it was cut off or empty. */
  | { readonly type: "answer-dropped"; readonly turn: number; readonly why: string }
  | { readonly type: "answer-finished"; readonly turn: number; readonly finish: AnswerFinished }
  | { readonly type: "tool-called"; readonly call: ToolCall }
  | { readonly type: "tool-returned"; readonly call: ToolCall; readonly text: string; readonly ms: number }
  | {
      readonly type: "block-compacted";
      readonly tag: Tag;
      readonly memory: BlockId;
      readonly replaced: readonly BlockId[];
      readonly tokensBefore: number;
      readonly tokensAfter: number;
    }
  /** What the compressor's calls cost, also when nothing came of them. */
  | { readonly type: "compressor-finished"; readonly finishes: readonly AnswerFinished[] }
  | {
      readonly type: "block-expanded";
      readonly tag: Tag;
      readonly copies: readonly BlockId[];
      readonly tokens: number;
    }
  | {
      readonly type: "block-appended";
      readonly block: BlockId;
      readonly kind: Block["kind"];
      readonly tokens: number;
    }
  /** The run ended without an answer and can be resumed; `code` is one of errors.ts. */
  | { readonly type: "run-stopped"; readonly code: string; readonly message: string }
  | {
      readonly type: "run-finished";
      readonly outcome: Outcome;
      readonly answer: string;
      readonly usage: Usage;
    };
