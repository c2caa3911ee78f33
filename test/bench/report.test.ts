// The report out of rows: every figure draws without a complaint, the tables have the rows' numbers, and only the
// latest run is in it.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { latestRows, type ResultRow } from "../../bench/report/rows.ts";
import { svgOf } from "../../bench/report/svg.ts";
import { filesOf } from "../../bench/report/write.ts";

const head = {
  run: "2026-01-02T03:04:05.000Z",
  at: "2026-01-02T03:14:05.000Z",
  model: "tiny",
  weights: "exact",
  kv: "f16",
  grid: "headline",
  load: 0.5,
  machine: { cpu: "Some CPU", cores: 2, features: ["avx2"], memoryGiB: 24, node: "v20", commit: "abc1234" },
};

function row(fields: Record<string, string | number>): ResultRow {
  const numbers = {
    n: 3,
    ms: 1234,
    "ms least": 1200,
    "ms most": 1300,
    kept: 64,
    relocated: 900,
    computed: 201,
  };
  return { ...head, ...numbers, "linear GMAC": 70, "attention GMAC": 12, pages: 13, ...fields };
}

const usual = { kind: "cell", place: "front", share: 0.5, summary: 256, removed: 1000 };
const cells = [2000, 16_000].flatMap((context) => [
  ...["suffix", "prefix", "none", "forget", "ideal"].map((arm) => row({ ...usual, context, arm })),
  ...["suffix", "ideal"].map((arm) => row({ ...usual, context, arm, place: "end" })),
  ...[1, 2].map((compaction) =>
    row({ kind: "chain", context, arm: "suffix", chain: 2, compaction, shifts: 3 }),
  ),
]);
cells.push(
  row({ kind: "issue", arm: "suffix", context: 16_000 }),
  row({ kind: "issue", arm: "ideal", context: 16_000 }),
);
const replays = ["react", "pca"].map((harness) =>
  row({
    recording: "hunt",
    harness,
    turns: 2,
    compactions: 1,
    expands: 0,
    "peak input": 700,
    input: 1300,
    catalog: 90,
    "of it compressor": 80,
    "prefix only": 1250,
    seconds: 12,
    computed: harness === "pca" ? 1100 : 700,
  }),
);
const turns = ["react", "pca"].flatMap((harness) =>
  [1, 2].map((turn) =>
    row({ recording: "hunt", harness, turn, input: 600 + turn, prefixOnly: 300, ms: 900 }),
  ),
);

test("a report has its figures and tables, and says what it was measured on", async () => {
  const files = await filesOf({ cells, replays, turns });
  const readme = files.get("compaction.md")!;
  const figures = [...files.keys()].filter((name) => name.endsWith(".svg"));
  expect(figures).toHaveLength(7);
  for (const name of figures) {
    expect(files.get(name)).toMatch(/^<svg[\s\S]*<\/svg>$/);
    expect(files.get(name)).not.toContain("NaN");
    expect(readme).toContain(`](${name})`);
  }
  expect(readme).toContain("Some CPU, 2 cores, avx2, 24 GiB; commit abc1234");
  expect(readme).toContain("begun 2026-01-02 03:04 UTC, 10 minutes in all");
  expect(readme).toContain(
    "| 16,000 | suffix | 3 | 1.23 s | 1.20 s … 1.30 s | 1.00x | 201 | 70.0 + 12.0 | 13 |",
  );
  expect(readme).toContain("computes 1.57 times the prompt tokens of ReAct");
  expect(readme).not.toContain("NaN");
  expect(readme).not.toContain("undefined");
});

test("sections without rows are left out", async () => {
  const files = await filesOf({ cells: [], replays, turns });
  expect([...files.keys()]).toEqual([
    "replay-input.svg",
    "replay-computed.svg",
    "replay-time.svg",
    "compaction.md",
  ]);
});

test("of two rows about the same thing the later run's is read, and what it left out from the run before, of any grid", () => {
  const folder = mkdtempSync(join(tmpdir(), "pocket-rows-"));
  try {
    const earlier = [row({ n: 1, context: 2000 }), row({ n: 2, context: 4000 })];
    const later = [row({ n: 3, context: 2000 }), row({ n: 4, context: 8000 })];
    const rows = [...later.map((one) => ({ ...one, run: "2026-01-03", grid: "full" })), ...earlier];
    writeFileSync(join(folder, "compaction.jsonl"), rows.map((one) => `${JSON.stringify(one)}\n`).join(""));
    expect(latestRows(folder, "compaction").map(({ n }) => n)).toEqual([3, 2, 4]);
    expect(latestRows(folder, "replay")).toEqual([]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("rows of other commits are not combined with those of the latest run", () => {
  const folder = mkdtempSync(join(tmpdir(), "pocket-rows-"));
  try {
    const old = row({ n: 1, context: 2000 });
    const rows = [
      { ...old, machine: { ...old.machine, commit: "fffffff" } },
      { ...row({ n: 2, context: 4000 }), run: "2026-01-03" },
      { ...row({ n: 3, context: 4000 }), run: "2026-01-03", model: "another" },
    ];
    writeFileSync(join(folder, "compaction.jsonl"), rows.map((one) => `${JSON.stringify(one)}\n`).join(""));
    expect(latestRows(folder, "compaction").map(({ n }) => n)).toEqual([2, 3]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("what cannot be drawn as it is described is refused", async () => {
  const description = {
    data: { values: [{ x: 1 }] },
    mark: "point",
    encoding: { x: { field: "x", type: "no such type" } },
  } as never;
  await expect(svgOf(description)).rejects.toThrow();
});
