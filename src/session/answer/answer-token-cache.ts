// Caches the token ids of generated answers by their text. A client sends the text back; encoding it again may give
// other ids, and then the answer's cells would not be found. An answer with tool calls comes back as content and calls,
// which a template may render differently from the model's text; that text is cached by content and calls. Shared by
// the sessions of one tenant. Bounded: a lost entry only costs time.
import type { Message, ToolCall } from "../../chat/chat.ts";
import { Lru } from "../../text/lru.ts";

const maxAnswers = 4096;
/** Two bytes per character of text, four per id. */
const maxBytes = 32 * 1024 * 1024;

export class AnswerTokenCache {
  readonly #answers = new Lru<Int32Array>(maxBytes, maxAnswers);
  /** Texts of answers with tool calls, by content and calls. */
  readonly #texts = new Lru<string>(maxBytes, maxAnswers);

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

  /** `text` is what the model generated for `content` and `calls`. */
  recordCalls(content: string, calls: readonly ToolCall[], text: string, tenant?: string): void {
    const key = keyOf(canonical(content, calls), tenant);
    this.#texts.set(key, text, (key.length + text.length) * 2);
  }

  /** The message with the model's own text, calls included, as its content, if its ids are known. */
  originalMessage(message: Message, tenant?: string): Message {
    const { role, content, toolCalls = [], ...others } = message;
    if (role !== "assistant" || toolCalls.length === 0) return message;
    const text = this.#texts.get(keyOf(canonical(content, toolCalls), tenant));
    if (text === undefined || !this.idsOf(text, tenant)) return message;
    return { ...others, role, content: text };
  }
}

/** One form for all spellings of the same calls, because clients parse and reformat arguments. Leaves out call ids. */
function canonical(content: string, calls: readonly ToolCall[]): string {
  return JSON.stringify([content.trim(), calls.map((call) => [call.name, compact(call.arguments)])]);
}

function compact(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text));
  } catch {
    return text;
  }
}

/** The length of the tenant's name comes first, so that no text can look like another tenant's. */
function keyOf(text: string, tenant: string | undefined): string {
  return tenant === undefined ? `-${text}` : `${tenant.length} ${tenant}${text}`;
}
