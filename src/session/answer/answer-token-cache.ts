// The ids an answer was generated with, by its text. A client sends the text back; encoding it again may give
// other ids, and then the cells of the answer would not be found. An answer with tool calls comes back as content
// and calls, which a template may write otherwise than the model did: its text is found by them. Answers are shared
// between the sessions of one tenant: ids of the same text are as good as any others. It is bounded, and losing an
// entry costs time only.
import type { Message, ToolCall } from "../../chat/chat.ts";
import { Lru } from "../../text/lru.ts";

const answersMax = 4096;
/** Characters of text plus four bytes per id. */
const bytesMax = 32 * 1024 * 1024;

export class AnswerTokenCache {
  readonly #answers = new Lru<Int32Array>(bytesMax, answersMax);
  /** Texts of answers with tool calls, by what a client sends back. */
  readonly #texts = new Lru<string>(bytesMax, answersMax);

  get size(): number {
    return this.#answers.size;
  }

  /** `ids` must decode to exactly `text`. */
  record(text: string, ids: readonly number[], tenant?: string): void {
    if (text === "" || ids.length === 0) return;
    this.#answers.set(keyOf(text, tenant), Int32Array.from(ids), text.length * 2 + ids.length * 4);
  }

  idsOf(text: string, tenant?: string): Int32Array | undefined {
    return this.#answers.get(keyOf(text, tenant));
  }

  /** `text` is what the model wrote for `content` and `calls`. */
  recordCalls(content: string, calls: readonly ToolCall[], text: string, tenant?: string): void {
    const key = keyOf(spellingOf(content, calls), tenant);
    this.#texts.set(key, text, (key.length + text.length) * 2);
  }

  /** The message as the model wrote it, its calls in the content, where it was written here and the ids are known. */
  originalMessage(message: Message, tenant?: string): Message {
    const { role, content, toolCalls = [], ...others } = message;
    if (role !== "assistant" || toolCalls.length === 0) return message;
    const text = this.#texts.get(keyOf(spellingOf(content, toolCalls), tenant));
    if (text === undefined || !this.idsOf(text, tenant)) return message;
    return { ...others, role, content: text };
  }
}

/** The same for all spellings of the same calls: clients parse arguments and write them again. Ids do not matter. */
function spellingOf(content: string, calls: readonly ToolCall[]): string {
  const spelled = calls.map((call) => [call.name, compact(call.arguments)]);
  return JSON.stringify([content.trim(), spelled]);
}

function compact(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text));
  } catch {
    return text;
  }
}

/** A length in front of the tenant's name, so that no text can look like another tenant's. */
function keyOf(text: string, tenant: string | undefined): string {
  return tenant === undefined ? `-${text}` : `${tenant.length} ${tenant}${text}`;
}
