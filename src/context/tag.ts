// Tags name archived ranges: `ctx-0001`. A label is a tag with the tags that its range refers to: `ctx-0002
// refs=ctx-0001`. The agent reads labels at the head of a memory and in the catalog.

/** Name of an archived range. */
export type Tag = `ctx-${string}`;

/** `ctx-0001`, `ctx-0012`, `ctx-12345`. Counted from 1. */
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

/** First line of a memory; `covers` are block ids: `[memory ctx-0002 refs=ctx-0001 covers=b011,b004-b005]`. */
export function memoryHead(tag: Tag, refs: readonly Tag[], covers: readonly string[]): string {
  return `[memory ${labelOf(tag, refs)} covers=${rangesOf(covers).join(",")}]`;
}

/** Joins consecutive ids: `b004-b005`. */
function rangesOf(ids: readonly string[]): string[] {
  const ranges: string[][] = [];
  for (const id of ids) {
    const last = ranges.at(-1)?.at(-1);
    if (last && last[0] === id[0] && Number(last.slice(1)) + 1 === Number(id.slice(1))) {
      ranges.at(-1)!.push(id);
    } else ranges.push([id]);
  }
  return ranges.map((range) => (range.length === 1 ? range[0]! : `${range[0]}-${range.at(-1)}`));
}
