// Finds the spans of a conversation that occur again in another: the heaviest common subsequence, weighted by tokens.
// Exact (dynamic programming) up to a bounded table size. Above it, only spans that occur once on each side are
// matched. Pure functions.
import type { Span } from "../../text/span.ts";

/** Indices of equal spans; lists of pairs rise on both sides. */
export type SpanPair = readonly [old: number, wanted: number];

/** Limit of the table: 4 bytes and a few nanoseconds per entry. */
const tableCells = 1_000_000;
/** An incomplete last span needs this many tokens to match the span that it begins. */
const minIncomplete = 16;

/**
 * Matches resident spans to wanted ones. The last resident span may be the beginning of a wanted one, because the
 * last token of an answer never gets a cell: it then counts as equal, with its own weight.
 */
export function matchSpans(resident: readonly Span[], wanted: readonly Span[]): SpanPair[] {
  const head = commonHead(resident, wanted);
  const tail = commonTail(resident.slice(head), wanted.slice(head));
  const middleOld = resident.slice(head, resident.length - tail);
  const middleNew = wanted.slice(head, wanted.length - tail);
  const equal = tail === 0 ? equalOrIncomplete(middleOld.at(-1)) : (a: Span, b: Span) => a.key === b.key;
  const middle =
    middleOld.length * middleNew.length <= tableCells
      ? heaviest(middleOld, middleNew, equal)
      : heaviestUnique(middleOld, middleNew);
  return [
    ...Array.from({ length: head }, (_, index): SpanPair => [index, index]),
    ...middle.map(([old, next]): SpanPair => [old + head, next + head]),
    ...Array.from(
      { length: tail },
      (_, index): SpanPair => [resident.length - tail + index, wanted.length - tail + index],
    ),
  ];
}

type Equal = (old: Span, wanted: Span) => boolean;

function equalOrIncomplete(last: Span | undefined): Equal {
  if (!last || last.tokens.length < minIncomplete) return (old, wanted) => old.key === wanted.key;
  return (old, wanted) => old.key === wanted.key || (old === last && wanted.key.startsWith(last.key));
}

function commonHead(resident: readonly Span[], wanted: readonly Span[]): number {
  const max = Math.min(resident.length, wanted.length);
  let count = 0;
  while (count < max && resident[count]!.key === wanted[count]!.key) count++;
  return count;
}

function commonTail(resident: readonly Span[], wanted: readonly Span[]): number {
  return commonHead(resident.toReversed(), wanted.toReversed());
}

/** best[i][j] = weight of the heaviest common subsequence of resident[i..] and wanted[j..]. */
function heaviest(resident: readonly Span[], wanted: readonly Span[], equal: Equal): SpanPair[] {
  const width = wanted.length + 1;
  const best = new Int32Array((resident.length + 1) * width);
  for (let old = resident.length - 1; old >= 0; old--) {
    for (let next = wanted.length - 1; next >= 0; next--) {
      const skip = Math.max(best[(old + 1) * width + next]!, best[old * width + next + 1]!);
      const take = equal(resident[old]!, wanted[next]!)
        ? best[(old + 1) * width + next + 1]! + resident[old]!.tokens.length
        : 0;
      best[old * width + next] = Math.max(skip, take);
    }
  }
  const pairs: SpanPair[] = [];
  let old = 0;
  let next = 0;
  while (old < resident.length && next < wanted.length) {
    const weight = best[old * width + next]!;
    if (weight === 0) break;
    if (weight === best[(old + 1) * width + next]!) old++;
    else if (weight === best[old * width + next + 1]!) next++;
    else pairs.push([old++, next++]);
  }
  return pairs;
}

interface Chain {
  readonly pair: SpanPair;
  readonly weight: number;
  readonly before: Chain | undefined;
}

/** Heaviest rising chain over spans that occur once on each side; O(n log n). */
function heaviestUnique(resident: readonly Span[], wanted: readonly Span[]): SpanPair[] {
  const indicesOld = uniqueIndices(resident);
  const indicesNew = uniqueIndices(wanted);
  // A Fenwick tree over old indices; each node holds the heaviest chain that ends in its range.
  const tree: (Chain | undefined)[] = new Array(resident.length + 1).fill(undefined);
  let heaviestChain: Chain | undefined;
  for (const [next, { key, tokens }] of wanted.entries()) {
    const old = indicesOld.get(key);
    if (old === undefined || indicesNew.get(key) !== next) continue;
    let before: Chain | undefined;
    for (let node = old; node > 0; node -= node & -node) before = heavier(before, tree[node]);
    const chain = { pair: [old, next] as SpanPair, weight: tokens.length + (before?.weight ?? 0), before };
    for (let node = old + 1; node < tree.length; node += node & -node)
      tree[node] = heavier(tree[node], chain);
    heaviestChain = heavier(heaviestChain, chain);
  }
  const pairs: SpanPair[] = [];
  for (let chain = heaviestChain; chain; chain = chain.before) pairs.push(chain.pair);
  return pairs.reverse();
}

function heavier(a: Chain | undefined, b: Chain | undefined): Chain | undefined {
  return (b?.weight ?? 0) > (a?.weight ?? 0) ? b : a;
}

/** Index of every key that occurs exactly once. */
function uniqueIndices(spans: readonly Span[]): Map<string, number> {
  const indices = new Map<string, number>();
  const repeated = new Set<string>();
  for (const [index, { key }] of spans.entries()) {
    if (indices.has(key)) repeated.add(key);
    else indices.set(key, index);
  }
  for (const key of repeated) indices.delete(key);
  return indices;
}
