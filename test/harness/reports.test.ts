// The workspace of the agent benchmark: its content, and that its grader counts only correct answers.
import { expect, test } from "vitest";
import { reportsOf, rightOnes, taskOf } from "../../bench/agent/reports.ts";
import { resultCharacters } from "../../src/harness/tools/toolset.ts";

const reports = reportsOf(7);

test("reports depend only on the seed, have their code once, and fit in one read", () => {
  expect(reportsOf(7)).toEqual(reports);
  expect(reportsOf(8)).not.toEqual(reports);
  expect(new Set(reports.map(({ code }) => code)).size).toBe(12);
  for (const { code, text } of reports) {
    expect(text.match(/\d{4}/g)).toEqual([code]);
    const numbered = text.split("\n").reduce((sum, line) => sum + line.length + 4, 0);
    expect(numbered).toBeLessThan(resultCharacters(8192));
  }
});

test("the task names every file and contains no code", () => {
  const task = taskOf(reports);
  for (const { path, code } of reports) {
    expect(task).toContain(path);
    expect(task).not.toContain(code);
  }
});

test("a station counts only with its own code and no other in its line", () => {
  const lines = reports.map(({ station, code }) => `${station} ${code}`);
  expect(rightOnes(reports, lines.join("\n"))).toHaveLength(12);
  expect(rightOnes(reports, "")).toEqual([]);
  expect(rightOnes(reports, lines.join(" "))).toEqual([]);
  expect(rightOnes(reports, reports.map(({ station }) => `${station} 1234`).join("\n"))).toEqual([]);
  const [first, second] = reports;
  expect(rightOnes(reports, `Station ${first!.station.toUpperCase()}: **${first!.code}**`)).toEqual([
    first!.station,
  ]);
  expect(rightOnes(reports, `${first!.station} ${first!.code} or ${second!.code}`)).toEqual([]);
});
