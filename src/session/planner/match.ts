// Which spans of a conversation come back in another: the heaviest common subsequence, weight = tokens. Up to a
// bounded size it is exact (dynamic programming); beyond that only spans that occur once on each side are
// considered, which is what long conversations are made of. Pure; knows spans, not what is done with them.
import type { Span } from "../../text/span.ts";

/** Places of equal spans, rising on both sides. */
export type Pair = readonly [old: number, wanted: number];

/** Cells of the table: 4 bytes each, and a few nanoseconds. */
const tableCells = 1_000_000;
/** A cut-off last span counts as the span it begins if it has this many tokens. */
const minBeginning = 16;

/**
 * The last resident span may be the beginning of a wanted one (the last token of an answer never gets a cell):
 * it then counts as equal, with its own weight.
 */
export function matchSpans(resident: readonly Span[], wanted: readonly Span[]): Pair[] {
  const head = commonHead(resident, wanted);
  const tail = commonTail(resident.slice(head), wanted.slice(head));
  const middleOld = resident.slice(head, resident.length - tail);
  const middleNew = wanted.slice(head, wanted.length - tail);
  const equal = tail === 0 ? equalOrBegun(middleOld.at(-1)) : (a: Span, b: Span) => a.key === b.key;
  const middle =
    middleOld.length * middleNew.length <= tableCells
      ? heaviest(middleOld, middleNew, equal)
      : heaviestUnique(middleOld, middleNew);
  return [
    ...Array.from({ length: head }, (_, place): Pair => [place, place]),
    ...middle.map(([old, next]): Pair => [old + head, next + head]),
    ...Array.from(
      { length: tail },
      (_, place): Pair => [resident.length - tail + place, wanted.length - tail + place],
    ),
  ];
}

type Equal = (old: Span, wanted: Span) => boolean;

function equalOrBegun(last: Span | undefined): Equal {
  if (!last || last.tokens.length < minBeginning) return (old, wanted) => old.key === wanted.key;
  return (old, wanted) => old.key === wanted.key || (old === last && wanted.key.startsWith(last.key));
}

function commonHead(resident: readonly Span[], wanted: readonly Span[]): number {
  const most = Math.min(resident.length, wanted.length);
  let count = 0;
  while (count < most && resident[count]!.key === wanted[count]!.key) count++;
  return count;
}

function commonTail(resident: readonly Span[], wanted: readonly Span[]): number {
  return commonHead(resident.toReversed(), wanted.toReversed());
}

/** best[i][j] = weight of the heaviest common subsequence of resident[i..] and wanted[j..]. */
function heaviest(resident: readonly Span[], wanted: readonly Span[], equal: Equal): Pair[] {
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
  const pairs: Pair[] = [];
  let old = 0;
  let next = 0;
  while (old < resident.length && next < wanted.length) {
    const here = best[old * width + next]!;
    if (here === 0) break;
    if (here === best[(old + 1) * width + next]!) old++;
    else if (here === best[old * width + next + 1]!) next++;
    else pairs.push([old++, next++]);
  }
  return pairs;
}

interface Chain {
  readonly pair: Pair;
  readonly weight: number;
  readonly before: Chain | undefined;
}

/** Heaviest rising chain over spans that occur once on each side; O(n log n). */
function heaviestUnique(resident: readonly Span[], wanted: readonly Span[]): Pair[] {
  const placesOld = uniquePlaces(resident);
  const placesNew = uniquePlaces(wanted);
  // A Fenwick tree over old places whose nodes hold the heaviest chain that ends in their range.
  const tree: (Chain | undefined)[] = new Array(resident.length + 1).fill(undefined);
  let heaviestChain: Chain | undefined;
  for (const [next, { key, tokens }] of wanted.entries()) {
    const old = placesOld.get(key);
    if (old === undefined || placesNew.get(key) !== next) continue;
    let before: Chain | undefined;
    for (let node = old; node > 0; node -= node & -node) before = heavier(before, tree[node]);
    const chain = { pair: [old, next] as Pair, weight: tokens.length + (before?.weight ?? 0), before };
    for (let node = old + 1; node < tree.length; node += node & -node)
      tree[node] = heavier(tree[node], chain);
    heaviestChain = heavier(heaviestChain, chain);
  }
  const pairs: Pair[] = [];
  for (let chain = heaviestChain; chain; chain = chain.before) pairs.push(chain.pair);
  return pairs.reverse();
}

function heavier(a: Chain | undefined, b: Chain | undefined): Chain | undefined {
  return (b?.weight ?? 0) > (a?.weight ?? 0) ? b : a;
}

/** Place of every key that occurs exactly once. */
function uniquePlaces(spans: readonly Span[]): Map<string, number> {
  const places = new Map<string, number>();
  const repeated = new Set<string>();
  for (const [place, { key }] of spans.entries()) {
    if (places.has(key)) repeated.add(key);
    else places.set(key, place);
  }
  for (const key of repeated) places.delete(key);
  return places;
}
