// A span: the tokens of one rendered message, or of text that the template adds. Conversations are compared span by
// span; two spans are equal if their tokens are.
import type { Role } from "../chat/chat.ts";

export interface Span {
  /** Role of the message; "template" for a default system text, the generation prompt and the like. */
  readonly role: Role | "template";
  readonly tokens: Int32Array;
  /** Equal for two spans if and only if their tokens are equal. */
  readonly key: string;
}

export function spanOf(role: Span["role"], tokens: Int32Array): Span {
  return { role, tokens, key: keyOf(tokens) };
}

export function tokensOf(spans: readonly Span[]): Int32Array {
  return concatenate(spans.map(({ tokens }) => tokens));
}

export function concatenate(parts: readonly Int32Array[]): Int32Array {
  const whole = new Int32Array(parts.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** Number of tokens. */
export function lengthOf(spans: readonly Span[]): number {
  return spans.reduce((sum, { tokens }) => sum + tokens.length, 0);
}

/** Number of equal leading tokens. */
export function commonLength(a: Int32Array, b: Int32Array): number {
  const max = Math.min(a.length, b.length);
  let count = 0;
  while (count < max && a[count] === b[count]) count++;
  return count;
}

/** The spans of the first `length` tokens: the last one may be cut, and none is empty because of the cut. */
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

/** The bytes of the tokens as a string, not a hash: equality is exact. */
function keyOf(tokens: Int32Array): string {
  return Buffer.from(tokens.buffer, tokens.byteOffset, tokens.byteLength).toString("latin1");
}
