// The JSON sidecar of a cell file: what the cells are, without their text. Tokens are in the cell file; API keys are in
// neither. Pure functions: text in, value out.
import { createHash } from "node:crypto";
import { type Span, spanOf } from "../../text/span.ts";
import type { Range } from "../planner/range.ts";

export interface Sidecar {
  readonly id: string;
  readonly named: boolean;
  /** saltOf the tenant. */
  readonly salt: string;
  /** Present on victims: the session that they were removed from. */
  readonly of?: string | undefined;
  /** `mark` identifies the span's tokens (spanMark). */
  readonly spans: readonly { readonly role: Span["role"]; readonly count: number; readonly mark: string }[];
  readonly relocated: readonly Range[];
  /** Keys of exact chunks (prefix-index.ts), every `markChunks`-th one: marks[i] covers (i + 1) * markChunks chunks. */
  readonly marks: readonly string[];
  /** Milliseconds since the epoch. */
  readonly usedAt: number;
}

const version = 2;
/** Chunks between two marks. Sharing fewer chunks is not worth reading a file. */
export const markChunks = 16;

const roles: readonly string[] = ["system", "user", "assistant", "tool", "template"];

export function marksOf(keys: readonly string[]): string[] {
  return keys.filter((_, index) => (index + 1) % markChunks === 0);
}

/** Equal for spans of one tenant with the same tokens, different otherwise (96 bits of a hash). */
export function spanMark(salt: string, { key }: Span): string {
  return createHash("sha256").update(`${salt} span\n`).update(key, "latin1").digest("base64url").slice(0, 16);
}

export function tokensIn({ spans }: Pick<Sidecar, "spans">): number {
  return spans.reduce((sum, { count }) => sum + count, 0);
}

/** Tokens of the spans with one of these marks. */
export function tokensMarked({ spans }: Pick<Sidecar, "spans">, marks: ReadonlySet<string>): number {
  return spans.reduce((sum, { count, mark }) => sum + (marks.has(mark) ? count : 0), 0);
}

/** Cuts `tokens` into the sidecar's spans. */
export function spansIn({ spans }: Pick<Sidecar, "spans">, tokens: Int32Array): Span[] {
  let at = 0;
  return spans.map(({ role, count }) => {
    at += count;
    return spanOf(role, tokens.slice(at - count, at));
  });
}

/** The name that a session's files share. The session's id does not appear in it. */
export function fileNameOf(id: string, salt: string): string {
  return createHash("sha256").update(`${salt} ${id}`).digest("base64url").slice(0, 32);
}

export function formatSidecar(sidecar: Sidecar): string {
  return JSON.stringify({ version, ...sidecar });
}

/** Undefined if formatSidecar did not write the text. */
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
