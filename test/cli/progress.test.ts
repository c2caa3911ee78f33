import { expect, test } from "vitest";
import { ProgressPrinter } from "../../src/cli/progress.ts";

function printerAt(clock: { ms: number }) {
  const lines: string[] = [];
  const printer = new ProgressPrinter({ write: (text) => lines.push(text) }, () => clock.ms);
  return { printer, lines };
}

test("without a terminal a line with bytes, rate and time left comes every few seconds", () => {
  const clock = { ms: 0 };
  const { printer, lines } = printerAt(clock);
  for (let second = 0; second <= 10; second++) {
    clock.ms = second * 1000;
    printer.report({ label: "model", bytes: second * 10_000_000, total: 100_000_000 });
  }
  printer.end();
  printer.end();
  expect(lines).toEqual([
    "model: 30.0 of 100.0 MB, 10.0 MB/s, 0:07 left\n",
    "model: 60.0 of 100.0 MB, 10.0 MB/s, 0:04 left\n",
    "model: 90.0 of 100.0 MB, 10.0 MB/s, 0:01 left\n",
    "model: 100.0 of 100.0 MB in 0:10\n",
  ]);
});

test("a resumed transfer counts only its own bytes in the rate, and a new label starts anew", () => {
  const clock = { ms: 0 };
  const { printer, lines } = printerAt(clock);
  printer.report({ label: "fetch", bytes: 50_000_000, total: 100_000_000 });
  clock.ms = 5000;
  printer.report({ label: "fetch", bytes: 60_000_000, total: 100_000_000 });
  printer.report({ label: "import", bytes: 0, total: 10_000_000 });
  clock.ms = 6000;
  printer.report({ label: "import", bytes: 5_000_000, total: 10_000_000 });
  printer.end();
  expect(lines).toEqual([
    "fetch: 60.0 of 100.0 MB, 2.0 MB/s, 0:20 left\n",
    "import: 5.0 of 10.0 MB, 5.0 MB/s, 0:01 left\n",
  ]);
});
