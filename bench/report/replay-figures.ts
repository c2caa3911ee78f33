// The figures of agent runs played again, turn by turn, as Vega-Lite descriptions over rows of results.
import type { TopLevelSpec } from "vega-lite";
import { number, type ResultRow, text } from "./rows.ts";
import { coloured, frame } from "./style.ts";

const harnessColours = { react: "#d7301f", pca: "#034e7b", "pca, prefix reuse": "#fc8d59" } as const;

/** Of turns: the input of each, or what was computed, or the time, summed up to it. */
export function replay(turns: readonly ResultRow[], what: "input" | "computed" | "seconds"): TopLevelSpec {
  const values = what === "input" ? inputs(turns) : summed(turns, what);
  const titles = {
    input: ["Input of each turn", "prompt tokens of the agent's request"],
    computed: [
      "Prompt tokens computed up to each turn",
      "the agent's requests; compressor calls are not in it",
    ],
    seconds: ["Time of prompts up to each turn", "seconds to first token, summed over the agent's requests"],
  } as const;
  const [title, subtitle] = titles[what];
  return {
    ...frame,
    title: { text: title, subtitle },
    data: { values },
    facet: { column: { field: "recording", type: "nominal", title: null } },
    spec: {
      width: 250,
      height: 220,
      mark: { type: "line", strokeWidth: 2 },
      encoding: {
        x: {
          field: "turn",
          type: "quantitative",
          axis: { title: "turn", tickCount: 6 },
          scale: { nice: false },
        },
        y: {
          field: "value",
          type: "quantitative",
          axis: { title: what === "seconds" ? "seconds" : "tokens", format: "~s" },
        },
        color: coloured("harness", harnessColours, values),
      },
    },
  };
}

type Point = {
  readonly recording: string;
  readonly harness: string;
  readonly turn: number;
  readonly value: number;
};

function inputs(turns: readonly ResultRow[]): Point[] {
  return turns
    .filter(({ harness }) => harness === "react" || harness === "pca")
    .map((row) => ({ ...placeOf(row), value: number(row, "input") }));
}

/** What prefix reuse would have computed is derived from the cache usage of the same run. */
function summed(turns: readonly ResultRow[], what: "computed" | "seconds"): Point[] {
  const sums = new Map<string, number>();
  const points: Point[] = [];
  const add = (row: ResultRow, harness: string, value: number) => {
    const place = { ...placeOf(row), harness };
    const key = `${place.recording} ${harness}`;
    const sum = (sums.get(key) ?? 0) + value;
    sums.set(key, sum);
    points.push({ ...place, value: sum });
  };
  for (const row of turns) {
    const harness = text(row, "harness");
    const isPrefix = harness === "pca prefix";
    if (what === "seconds") add(row, isPrefix ? "pca, prefix reuse" : harness, number(row, "ms") / 1000);
    else if (!isPrefix) add(row, harness, number(row, "computed"));
    if (what === "computed" && harness === "pca") add(row, "pca, prefix reuse", number(row, "prefixOnly"));
  }
  return points;
}

function placeOf(row: ResultRow): Omit<Point, "value"> {
  return { recording: text(row, "recording"), harness: text(row, "harness"), turn: number(row, "turn") };
}
