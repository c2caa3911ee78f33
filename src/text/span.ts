// The tokens of one rendered message, the unit in which conversations are compared (design §2). Two spans are
// equal when their tokens are. Not a range of pages, and not a message: a template may add spans of its own.
import type { Role } from "../chat/chat.ts";

export interface Span {
  /** Whose message; "template" for what the template adds: a default system text, the generation prompt. */
  readonly role: Role | "template";
  readonly tokens: Int32Array;
  /** Equal for two spans exactly when their tokens are equal. */
  readonly key: string;
}

export function spanOf(role: Span["role"], tokens: Int32Array): Span {
  return { role, tokens, key: keyOf(tokens) };
}

export function tokensOf(spans: readonly Span[]): Int32Array {
  const whole = new Int32Array(lengthOf(spans));
  let at = 0;
  for (const { tokens } of spans) {
    whole.set(tokens, at);
    at += tokens.length;
  }
  return whole;
}

export function lengthOf(spans: readonly Span[]): number {
  return spans.reduce((sum, { tokens }) => sum + tokens.length, 0);
}

/** How many leading tokens are the same. */
export function commonLength(a: Int32Array, b: Int32Array): number {
  const most = Math.min(a.length, b.length);
  let count = 0;
  while (count < most && a[count] === b[count]) count++;
  return count;
}

/** The first `length` tokens; a span that does not fit wholly is cut, empty ones at the end are left out. */
export function truncate(spans: readonly Span[], length: number): Span[] {
  const kept: Span[] = [];
  let left = length;
  for (const span of spans) {
    if (left <= 0) break;
    kept.push(span.tokens.length <= left ? span : spanOf(span.role, span.tokens.slice(0, left)));
    left -= span.tokens.length;
  }
  return kept;
}

/** The token bytes as a string: exact, so equality never rests on a hash. */
function keyOf(tokens: Int32Array): string {
  return Buffer.from(tokens.buffer, tokens.byteOffset, tokens.byteLength).toString("latin1");
}
