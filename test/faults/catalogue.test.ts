// Every number of the catalogue of public bug reports (kept outside this repository) has a test that begins with
// it, here or in the files beside this one. The list is the catalogue's numbers; gaps in it are the catalogue's.
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";

const catalogue = [
  ...[1, 2, 4, 5, 6, 7, 8, 9, 10, 13, 14, 15, 17, 18, 20],
  ...[21, 23, 24, 25, 26, 27, 28, 29, 31, 32, 33, 34, 35, 37],
  ...[38, 39, 40, 41, 42, 43, 44, 45, 46],
  ...[47, 48, 50, 51, 52],
];

const folder = fileURLToPath(new URL(".", import.meta.url));

function numbersIn(text: string): number[] {
  const named = [...text.matchAll(/["'`]fault (\d+): \S/g)].map(([, number]) => Number(number));
  const excused = [...text.matchAll(/doesNotApply\(\s*(\d+),/g)].map(([, number]) => Number(number));
  return [...named, ...excused];
}

test("every fault of the catalogue has a test that is named after its number", () => {
  const files = readdirSync(folder).filter(
    (name) => /\.test\.ts$/.test(name) && !name.startsWith("catalogue"),
  );
  const found = new Set(files.flatMap((name) => numbersIn(readFileSync(folder + name, "utf8"))));
  expect(catalogue.filter((number) => !found.has(number))).toEqual([]);
  expect([...found].filter((number) => !catalogue.includes(number))).toEqual([]);
});

test("a number in a comment or without a sentence is no test", () => {
  const text =
    '// fault 3: x\ntest("fault 4:", f); test("fault 5: y", f); doesNotApply(6, "z"); test("default 7: a", f)';
  expect(numbersIn(text)).toEqual([5, 6]);
});
