// The workspace of the agent benchmark: up to twelve reports of made-up stations, the same for the same seed, of which one
// agent with a window of 8K can hold half. Each gives its station's calibration code once, in its own words, between
// sentences that do not matter. It also grades what the agent wrote: how many codes are right.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";

export interface Report {
  /** In the workspace. */
  readonly path: string;
  readonly station: string;
  /** Four digits. */
  readonly code: string;
  readonly text: string;
}

/** What the agent is to write. */
export const answerFile = "codes.txt";

const stations = [
  ...["anvil", "birch", "cobalt", "dune", "ember", "fjord"],
  ...["garnet", "heron", "islet", "juniper", "kelp", "larch"],
];

/** Reports of about 3,600 characters, so that one read shows all of one. */
export function reportsOf(seed: number, count = stations.length): Report[] {
  const random = randomOf(seed);
  return stations.slice(0, count).map((station, index) => {
    const code = String(1000 + Math.floor(9000 * random()));
    const path = `reports/${String(index + 1).padStart(2, "0")}-${station}.md`;
    return { path, station, code, text: textOf(station, code, random) };
  });
}

/** A plan, step by step: small models do not make their own. */
export function taskOf(reports: readonly Report[]): string {
  const steps = [
    ...reports.map(({ path }) => `read ${path}`),
    `write ${answerFile}: one line per station, its name and its code, such as 'anvil 1234'`,
    "end the task with one sentence that says what you did",
  ];
  return [
    `${reports.length} stations have each sent a report. A report gives the calibration code of its station, a number of four digits, once and somewhere in its text. Find all ${reports.length} codes.`,
    "Work through this list from top to bottom, one call per step; look into the context for the steps that are done, and do the next one:",
    ...steps.map((step, index) => `${index + 1}. ${step}`),
  ].join("\n");
}

export function writeReports(folder: string, reports: readonly Report[]): void {
  mkdirSync(join(folder, "reports"), { recursive: true });
  for (const { path, text } of reports) writeFileSync(join(folder, path), text);
}

/** Stations whose name occurs in a line with their code and no other four-digit number. */
export function rightOnes(reports: readonly Report[], written: string): string[] {
  const lines = written.toLowerCase().split("\n");
  return reports
    .filter(({ station, code }) => {
      const own = lines.filter((line) => line.includes(station));
      const given = own.flatMap((line) => line.match(/(?<!\d)\d{4}(?!\d)/g) ?? []);
      return given.length > 0 && given.every((one) => one === code);
    })
    .map(({ station }) => station);
}

const openings = [
  (name: string) => `# Report of station ${name}`,
  (name: string) => `# Station ${name}, report of the quarter`,
  (name: string) => `# What happened at station ${name}`,
];

const codes = [
  (code: string) => `After the instruments were taken apart, the calibration code was set to ${code}.`,
  (code: string) => `The calibration code of this station is ${code} until the next visit.`,
  (code: string) => `We agreed on ${code} as the calibration code, and it was written on the case.`,
  (code: string) => `Calibration code, as read twice by two people: ${code}.`,
];

const subjects = ["The keeper", "The night crew", "A visitor", "The engineer", "The boat's mate", "The cook"];
const verbs = ["repaired", "painted", "measured", "cleaned", "replaced", "inspected", "carried away"];
const objects = [
  ...["the north railing", "the diesel pump", "two of the lamps", "the rain gauge", "the store room door"],
  ...["a coil of rope", "the radio mast", "the old boiler", "the water tank", "the steps to the landing"],
];
const times = [
  ...["before the storm", "early on a Monday", "while the tide was low", "in thick fog", "after lunch"],
  ...["when the supply boat was late", "during the long calm", "on the last warm day"],
];
const ends = [
  ...["and nobody has complained since", "which took longer than planned", "and the log says so"],
  ...["although spare parts were short", "as the rules ask for", "and it held through the winter"],
];

function textOf(station: string, code: string, random: () => number): string {
  const pick = <Item>(items: readonly Item[]) => items[Math.floor(random() * items.length)]!;
  const name = station[0]!.toUpperCase() + station.slice(1);
  const sentence = () => `${pick(subjects)} ${pick(verbs)} ${pick(objects)} ${pick(times)}, ${pick(ends)}.`;
  const paragraphs = Array.from({ length: 10 }, () => [sentence(), sentence(), sentence(), sentence()]);
  pick(paragraphs.slice(2, 8)).splice(2, 0, pick(codes)(code));
  return `${[pick(openings)(name), ...paragraphs.map((sentences) => sentences.join(" "))].join("\n\n")}\n`;
}

/** Mulberry32: numbers in [0, 1), the same for the same seed everywhere. */
function randomOf(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
