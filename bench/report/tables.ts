// The tables of the report in Markdown, out of rows of results. Numbers are the rows' own; nothing is typed in here.
import { isSameCondition, isUsual } from "./figures.ts";
import { maybe, number, type ResultRow, text } from "./rows.ts";

/** Milliseconds with their spread, and what was computed, per context and arm. */
export function armTable(rows: readonly ResultRow[]): string {
  const usual = rows.filter(isUsual);
  const head = [
    "context",
    "reuse",
    "n",
    "first token",
    "least … most",
    "to ideal",
    "computed",
    "GMAC linear + attention",
    "pages",
  ];
  const lines = usual.map((row) => {
    const ideal = usual.find((other) => other.arm === "ideal" && other.context === row.context);
    return [
      thousands(number(row, "context")),
      text(row, "arm"),
      number(row, "n"),
      seconds(number(row, "ms")),
      `${seconds(number(row, "ms least"))} … ${seconds(number(row, "ms most"))}`,
      ideal ? times(number(row, "ms") / number(ideal, "ms")) : "",
      thousands(number(row, "computed")),
      work(row),
      maybe(row, "pages") ?? "",
    ];
  });
  return table(head, lines);
}

/** All conditions with suffix reuse, and the other cheap arms. */
export function cellTable(rows: readonly ResultRow[]): string {
  const cells = rows.filter(({ kind }) => kind === "cell");
  const head = [
    "context",
    "place",
    "removed",
    "summary",
    "reuse",
    "n",
    "first token",
    "ideal",
    "ratio",
    "computed",
    "GMAC linear + attention",
    "pages",
  ];
  const lines = cells
    .filter((row) => row.arm !== "ideal" && !isUsual(row))
    .map((row) => {
      const ideal = cells.find((other) => other.arm === "ideal" && isSameCondition(other, row));
      const idealMs = ideal ? number(ideal, "ms") : Number.NaN;
      return [
        thousands(number(row, "context")),
        text(row, "place"),
        `${number(row, "share") * 100} %${row.removed === undefined ? "" : `, ${thousands(number(row, "removed"))}`}`,
        thousands(number(row, "summary")),
        text(row, "arm"),
        number(row, "n"),
        seconds(number(row, "ms")),
        seconds(idealMs),
        times(number(row, "ms") / idealMs),
        thousands(number(row, "computed")),
        work(row),
        maybe(row, "pages") ?? "",
      ];
    });
  return table(head, lines);
}

export function issueTable(rows: readonly ResultRow[]): string {
  const issue = rows.filter(({ kind }) => kind === "issue");
  const suffix = issue.find(({ arm }) => arm === "suffix");
  const head = ["what", "n", "first token", "least … most", "suffix takes", "kept", "relocated", "computed"];
  const lines = issue.map((row) => [
    text(row, "arm"),
    number(row, "n"),
    seconds(number(row, "ms")),
    `${seconds(number(row, "ms least"))} … ${seconds(number(row, "ms most"))}`,
    suffix ? `${times(number(suffix, "ms") / number(row, "ms"))} of it` : "",
    thousands(number(row, "kept")),
    row.relocated === undefined ? "" : thousands(number(row, "relocated")),
    thousands(number(row, "computed")),
  ]);
  return table(head, lines);
}

/** A line per chain: the first compaction, the last, and all of them. */
export function chainTable(rows: readonly ResultRow[]): string {
  const chains = new Map<string, ResultRow[]>();
  for (const row of rows.filter(({ kind }) => kind === "chain")) {
    const key = `${number(row, "context")} ${number(row, "chain")}`;
    chains.set(key, [...(chains.get(key) ?? []), row]);
  }
  const head = [
    "context",
    "compactions",
    "first",
    "median",
    "last",
    "computed in all",
    "prefix reuse in all",
    "shifts at the end",
  ];
  const lines = [...chains.values()].map((chain) => {
    const times = chain.map((row) => number(row, "ms"));
    const sum = (pick: (row: ResultRow) => number) => chain.reduce((total, row) => total + pick(row), 0);
    const computed = sum((row) => number(row, "computed"));
    return [
      thousands(number(chain[0]!, "context")),
      chain.length,
      seconds(times[0]!),
      seconds(times.toSorted((a, b) => a - b)[Math.floor(times.length / 2)]!),
      seconds(times.at(-1)!),
      thousands(computed),
      thousands(computed + sum((row) => number(row, "relocated"))),
      number(chain.at(-1)!, "shifts"),
    ];
  });
  return table(head, lines);
}

export function replayTable(rows: readonly ResultRow[]): string {
  const head = [
    "recording",
    "harness",
    "turns",
    "compactions",
    "expands",
    "peak input",
    "input in all",
    "computed",
    "of it catalog",
    "of it compressor",
    "prefix reuse",
    "GMAC linear + attention",
    "prompts took",
  ];
  const lines = rows.map((row) => [
    text(row, "recording"),
    text(row, "harness"),
    number(row, "turns"),
    number(row, "compactions"),
    number(row, "expands"),
    ...["peak input", "input", "computed", "catalog", "of it compressor", "prefix only"].map((key) =>
      thousands(number(row, key)),
    ),
    work(row),
    seconds(1000 * number(row, "seconds")),
  ]);
  return table(head, lines);
}

function work(row: ResultRow): string {
  const linear = maybe(row, "linear GMAC");
  const attention = maybe(row, "attention GMAC");
  if (linear === undefined || attention === undefined) return "";
  return `${short(linear)} + ${short(attention)}`;
}

export function seconds(ms: number): string {
  return ms < 1000 ? `${Math.round(ms)} ms` : `${short(ms / 1000)} s`;
}

function times(ratio: number): string {
  return `${short(ratio)}x`;
}

function short(value: number): string {
  return Math.abs(value) >= 100 ? thousands(Math.round(value)) : value.toPrecision(3);
}

export function thousands(value: number): string {
  return String(value).replace(/\B(?=(\d{3})+$)/g, ",");
}

function table(head: readonly string[], lines: readonly (readonly (string | number)[])[]): string {
  return [head, head.map(() => "---"), ...lines].map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}
