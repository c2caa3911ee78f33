// The small JSON file beside the cells of a session on disk: what they are, without a word of what they say.
// Tokens stand in the file of the cells; API keys stand nowhere. Pure: text in, value out.
import { createHash } from "node:crypto";
import type { Span } from "../text/span.ts";
import type { Range } from "./range.ts";

export interface Sidecar {
  readonly id: string;
  readonly named: boolean;
  /** saltOf the tenant. */
  readonly salt: string;
  readonly spans: readonly { readonly role: Span["role"]; readonly count: number }[];
  readonly relocated: readonly Range[];
  /** Names of exact chunks (prefixes.ts), of every `markChunks`-th one; marks[i] covers (i + 1) * markChunks. */
  readonly marks: readonly string[];
  /** Milliseconds since the epoch. */
  readonly usedAt: number;
}

const version = 1;
/** Chunks from one mark to the next: less than that is not worth reading a file for. */
export const markChunks = 16;

const roles: readonly string[] = ["system", "user", "assistant", "tool", "template"];

export function marksOf(keys: readonly string[]): string[] {
  return keys.filter((_, place) => (place + 1) % markChunks === 0);
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
  const { spans, relocated, marks, ...plain } = value as Record<keyof Sidecar | "version", unknown>;
  return (
    plain.version === version &&
    typeof plain.id === "string" &&
    typeof plain.named === "boolean" &&
    typeof plain.salt === "string" &&
    typeof plain.usedAt === "number" &&
    isListOf(spans, ({ role, count }) => roles.includes(role as string) && isCount(count)) &&
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

function isCount(value: unknown): value is number {
  return typeof value === "number" && Number.isSafeInteger(value) && value >= 0;
}
