// The small JSON file beside the cells of a session on disk: what they are, without a word of what they say.
// Tokens stand in the file of the cells; API keys stand nowhere. Pure: text in, value out.
import { createHash } from "node:crypto";
import { type Span, spanOf } from "../../text/span.ts";
import type { Range } from "../planner/range.ts";

export interface Sidecar {
  readonly id: string;
  readonly named: boolean;
  /** saltOf the tenant. */
  readonly salt: string;
  /** Present on remains: the session that they were taken out of. */
  readonly of?: string | undefined;
  /** `mark` names what the span says (spanMark). */
  readonly spans: readonly { readonly role: Span["role"]; readonly count: number; readonly mark: string }[];
  readonly relocated: readonly Range[];
  /** Names of exact chunks (prefix-index.ts), of every `markChunks`-th one; marks[i] covers (i + 1) * markChunks. */
  readonly marks: readonly string[];
  /** Milliseconds since the epoch. */
  readonly usedAt: number;
}

const version = 2;
/** Chunks from one mark to the next: less than that is not worth reading a file for. */
export const markChunks = 16;

const roles: readonly string[] = ["system", "user", "assistant", "tool", "template"];

export function marksOf(keys: readonly string[]): string[] {
  return keys.filter((_, place) => (place + 1) % markChunks === 0);
}

/** Equal for spans of one tenant exactly when they have the same tokens, but for a chance of 2^-96. */
export function spanMark(salt: string, { key }: Span): string {
  return createHash("sha256").update(`${salt} span\n`).update(key, "latin1").digest("base64url").slice(0, 16);
}

export function tokensIn({ spans }: Pick<Sidecar, "spans">): number {
  return spans.reduce((sum, { count }) => sum + count, 0);
}

/** Tokens of the spans that have one of these marks. */
export function tokensMarked({ spans }: Pick<Sidecar, "spans">, marks: ReadonlySet<string>): number {
  return spans.reduce((sum, { count, mark }) => sum + (marks.has(mark) ? count : 0), 0);
}

/** `tokens` cut as the sidecar tells. */
export function spansIn({ spans }: Pick<Sidecar, "spans">, tokens: Int32Array): Span[] {
  let at = 0;
  return spans.map(({ role, count }) => {
    at += count;
    return spanOf(role, tokens.slice(at - count, at));
  });
}

/** The files' common name: nothing of a session's id reaches the file system. */
export function fileNameOf(id: string, salt: string): string {
  return createHash("sha256").update(`${salt} ${id}`).digest("base64url").slice(0, 32);
}

export function formatSidecar(sidecar: Sidecar): string {
  return JSON.stringify({ version, ...sidecar });
}

/** Undefined for anything that formatSidecar has not written. */
export function parseSidecar(text: string): Sidecar | undefined {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return undefined;
  }
  return isSidecar(value) ? value : undefined;
}

function isSidecar(value: unknown): value is Sidecar {
  if (typeof value !== "object" || value === null) return false;
  const { spans, relocated, marks, of, ...plain } = value as Record<keyof Sidecar | "version", unknown>;
  return (
    plain.version === version &&
    typeof plain.id === "string" &&
    typeof plain.named === "boolean" &&
    typeof plain.salt === "string" &&
    typeof plain.usedAt === "number" &&
    (of === undefined || typeof of === "string") &&
    isListOf(spans, ({ role, count, mark }) => isRole(role) && isCount(count) && typeof mark === "string") &&
    isListOf(relocated, ({ start, end }) => isCount(start) && isCount(end) && start <= end) &&
    Array.isArray(marks) &&
    marks.every((mark) => typeof mark === "string")
  );
}

function isListOf(value: unknown, is: (item: Record<string, unknown>) => boolean): boolean {
  return (
    Array.isArray(value) &&
    value.every((item) => typeof item === "object" && item !== null && is(item as Record<string, unknown>))
  );
}

function isRole(value: unknown): boolean {
  return roles.includes(value as string);
}

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}
