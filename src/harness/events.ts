// Events of an agent loop, in the order in which they happen. The terminal view, the HTTP stream, the stored
// events and the report are made from them; they do not control the loop. Their JSON form is in
// event-json.ts.

import type { ToolCall } from "../chat/chat.ts";
import type { Block, BlockId } from "../context/block.ts";
import type { AnswerFinished } from "../context/collect-answer.ts";
import type { Tag } from "../context/tag.ts";
import type { Usage } from "./usage.ts";

/**
 * answered: the agent ended its task. forced: the window or the turns were used up, and a final answer was
 * demanded. overflow: the server refused the prompt as too long; the answer is the agent's last text.
 */
export type Outcome = "answered" | "forced" | "overflow";

export type AgentEvent =
  /** `used`: estimated tokens of the next prompt. `limit`: tokens of the window. */
  | { readonly type: "turn-started"; readonly turn: number; readonly used: number; readonly limit: number }
  | { readonly type: "text-delta"; readonly text: string }
  /** The answer was cut off or empty, and is not part of the history. */
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
  /** What the calls of the compressor cost, also if nothing was compacted. */
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
  /** The run ended without an answer and can be resumed. `code`: of errors.ts. */
  | { readonly type: "run-stopped"; readonly code: string; readonly message: string }
  | {
      readonly type: "run-finished";
      readonly outcome: Outcome;
      readonly answer: string;
      readonly usage: Usage;
    };
