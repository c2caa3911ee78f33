// Tags name archived ranges: `ctx-0001`, and with what the range referred to, `ctx-0002 refs=ctx-0001`. The
// label is what the agent reads at the head of a memory and in the catalog. Nothing here looks into an archive.
import type { BlockId } from "./block.ts";

export type Tag = `ctx-${string}`;

/** `ctx-0001`, `ctx-0012`, `ctx-12345`; counted from 1. */
export function tagOf(number: number): Tag {
  return `ctx-${String(number).padStart(4, "0")}`;
}

export function isTag(text: unknown): text is Tag {
  return typeof text === "string" && /^ctx-\d{4,}$/.test(text);
}

/** `ctx-0002 refs=ctx-0001,ctx-0004`, or the tag alone. */
export function labelOf(tag: Tag, refs: readonly Tag[]): string {
  return refs.length === 0 ? tag : `${tag} refs=${refs.join(",")}`;
}

/** First line of a memory: `[memory ctx-0002 refs=ctx-0001 covers=b011,b004-b005]`. */
export function memoryHead(tag: Tag, refs: readonly Tag[], covers: readonly BlockId[]): string {
  return `[memory ${labelOf(tag, refs)} covers=${stretchesOf(covers).join(",")}]`;
}

/** Neighbours that count up become `b004-b005`. */
function stretchesOf(ids: readonly BlockId[]): string[] {
  const stretches: BlockId[][] = [];
  for (const id of ids) {
    const last = stretches.at(-1)?.at(-1);
    if (last && last[0] === id[0] && Number(last.slice(1)) + 1 === Number(id.slice(1))) {
      stretches.at(-1)!.push(id);
    } else stretches.push([id]);
  }
  return stretches.map((run) => (run.length === 1 ? run[0]! : `${run[0]}-${run.at(-1)}`));
}
