// The figures of the compactions, as Vega-Lite descriptions over rows of results. What a figure shows is here; how it
// becomes a file is svg.ts.
import type { TopLevelSpec } from "vega-lite";
import { number, type ResultRow, text } from "./rows.ts";
import { coloured, frame } from "./style.ts";

/** One order and one colour for each way to reuse, in all figures. */
const armColours = {
  none: "#7f0000",
  prefix: "#d7301f",
  forget: "#fc8d59",
  "repair: assistant": "#8c6bb1",
  "repair: 16": "#3690c0",
  suffix: "#034e7b",
  ideal: "#000000",
  "llama.cpp --cache-reuse 64": "#238b45",
  "llama.cpp appending": "#99d8c9",
} as const;

/** Cells of the usual condition, which is the only one that all arms have. */
export function isUsual(row: ResultRow): boolean {
  return row.kind === "cell" && row.place === "front" && row.share === 0.5 && row.summary === 256;
}

export function firstToken(rows: readonly ResultRow[]): TopLevelSpec {
  return overContexts(rows, {
    title: "Time to first token after a compaction",
    subtitle: "the front half of the conversation became a summary of 256 tokens; both axes logarithmic",
    field: "ms",
    scale: 1000,
    axis: "seconds to first token",
  });
}

export function computed(rows: readonly ResultRow[]): TopLevelSpec {
  return overContexts(rows, {
    title: "Prompt tokens computed after a compaction",
    subtitle: "the front half of the conversation became a summary of 256 tokens; both axes logarithmic",
    field: "computed",
    scale: 1,
    axis: "tokens computed",
  });
}

interface Lines {
  readonly title: string;
  readonly subtitle: string;
  readonly field: string;
  readonly scale: number;
  readonly axis: string;
}

function overContexts(
  rows: readonly ResultRow[],
  { title, subtitle, field, scale, axis }: Lines,
): TopLevelSpec {
  const usual = rows.filter(isUsual);
  const contexts = [...new Set(usual.map((row) => number(row, "context")))].toSorted((a, b) => a - b);
  const values = usual.map((row) => ({
    context: number(row, "context"),
    value: number(row, field) / scale,
    reuse: text(row, "arm"),
  }));
  const color = coloured("reuse", armColours, values);
  return {
    ...frame,
    title: { text: title, subtitle },
    width: 520,
    height: 340,
    data: { values },
    mark: { type: "line", point: { size: 55, filled: true }, strokeWidth: 2 },
    encoding: {
      x: {
        field: "context",
        type: "quantitative",
        scale: { type: "log", base: 2, domain: [contexts[0]! / 1.1, contexts.at(-1)! * 1.1], nice: false },
        axis: {
          title: "tokens in the context before",
          values: contexts,
          labelExpr: "datum.value / 1000 + 'K'",
        },
      },
      y: {
        field: "value",
        type: "quantitative",
        scale: { type: "log", nice: true },
        axis: { title: axis, format: "~g", tickCount: 6 },
      },
      color,
      strokeDash: { ...color, scale: { domain: color.scale.domain, range: color.scale.domain.map(dashOf) } },
    },
  };
}

/** Every suffix compaction against what its summary costs at the end of a context of that length. */
export function againstIdeal(rows: readonly ResultRow[]): TopLevelSpec {
  const cells = rows.filter(({ kind }) => kind === "cell");
  const values = cells
    .filter(({ arm }) => arm === "suffix")
    .flatMap((row) => {
      const ideal = cells.find((other) => other.arm === "ideal" && isSameCondition(row, other));
      if (!ideal) return [];
      const context = `${number(row, "context") / 1000}K`;
      return [{ context, suffix: number(row, "ms") / 1000, ideal: number(ideal, "ms") / 1000 }];
    });
  const ends = values.flatMap(({ suffix, ideal }) => [suffix, ideal]);
  const domain = [Math.min(...ends) / 1.2, Math.max(...ends) * 1.2];
  const axisOf = (field: string, title: string) => ({
    field,
    type: "quantitative" as const,
    scale: { type: "log" as const, domain, nice: false },
    axis: { title, format: "~g", tickCount: 5 },
  });
  const order = [...new Set(values.map(({ context }) => context))].toSorted(
    (a, b) => Number.parseInt(a, 10) - Number.parseInt(b, 10),
  );
  return {
    ...frame,
    title: {
      text: "Each compaction beside its ideal",
      subtitle: "reuse suffix, over places, shares and summaries; on the line both take the same time",
    },
    width: 380,
    height: 380,
    layer: [
      {
        data: { values: domain.map((end) => ({ suffix: end, ideal: end })) },
        mark: { type: "line", color: "#999", strokeDash: [4, 4] },
        encoding: {
          x: axisOf("ideal", "ideal: as many tokens appended, seconds"),
          y: axisOf("suffix", "first token after the compaction, seconds"),
        },
      },
      {
        data: { values },
        mark: { type: "point", filled: true, size: 70, opacity: 0.8 },
        encoding: {
          x: axisOf("ideal", "ideal: as many tokens appended, seconds"),
          y: axisOf("suffix", "first token after the compaction, seconds"),
          color: colorOf(order),
        },
      },
    ],
  };
}

/** A shade for each context, in this order. */
function colorOf(order: readonly string[]) {
  return {
    field: "context",
    type: "nominal",
    title: "context",
    sort: [...order],
    scale: { domain: [...order], range: shades(order.length) },
  } as const;
}

/** Rows that differ in the way to reuse alone. */
export function isSameCondition(one: ResultRow, other: ResultRow): boolean {
  return ["context", "place", "share", "summary"].every((key) => one[key] === other[key]);
}

export function chains(rows: readonly ResultRow[]): TopLevelSpec {
  const all = rows.filter(({ kind }) => kind === "chain");
  const longest = Math.max(...all.map((row) => number(row, "chain")));
  const values = all
    .filter((row) => row.chain === longest)
    .map((row) => ({
      context: `${number(row, "context") / 1000}K`,
      compaction: number(row, "compaction"),
      seconds: number(row, "ms") / 1000,
    }));
  const order = [...new Set(values.map(({ context }) => context))];
  return {
    ...frame,
    title: {
      text: `A chain of ${longest} compactions of one session`,
      subtitle: "three quarters of the conversation go piece by piece, each piece to a summary of 64 tokens",
    },
    width: 520,
    height: 280,
    data: { values },
    mark: { type: "line", point: { size: 45, filled: true }, strokeWidth: 2 },
    encoding: {
      x: {
        field: "compaction",
        type: "quantitative",
        scale: { domain: [1, longest], nice: false },
        axis: { title: "compaction", tickMinStep: 1, format: "d" },
      },
      y: {
        field: "seconds",
        type: "quantitative",
        scale: { zero: true },
        axis: { title: "seconds to first token" },
      },
      color: colorOf(order),
    },
  };
}

/** Those that nearly coincide show through one another. */
function dashOf(arm: string): number[] {
  const dashes: Readonly<Record<string, number[]>> = { ideal: [6, 4], prefix: [10, 6], forget: [3, 5] };
  return arm.startsWith("llama.cpp") ? [2, 3] : (dashes[arm] ?? [1, 0]);
}

/** From light to dark. */
function shades(count: number): string[] {
  return ["#a6bddb", "#74a9cf", "#2b8cbe", "#045a8d", "#023858"].slice(-count);
}
