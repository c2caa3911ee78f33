// kill -9 at every statement of a compaction. Each time the store is opened again by another process, which
// finds the run as it was before or as it is after, nothing in between and nothing lost, and goes on.
import { execFile } from "node:child_process";
import { copyFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { checkStore } from "../../src/context/integrity-check.ts";
import { Store } from "../../src/context/store.ts";
import { count, exchangeOf, instructions } from "../support/fake-chat.ts";

const child = fileURLToPath(new URL("compacting-child.ts", import.meta.url));
const names = ["b001", "b002", "b003", "b004", "b005"];
const task = { role: "user", content: "Find the answer." } as const;
const originals = [task, ...names.flatMap((name) => exchangeOf(name))];
let folder: string;

beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "pocket-kill-"));
  const store = new Store(join(folder, "seed.sqlite"));
  const { conversation } = store.create({ id: "run", title: "t", settings: null, instructions }, count);
  conversation.request(task);
  for (const name of names) conversation.exchange(exchangeOf(name));
  store.close();
});
afterAll(() => rmSync(folder, { recursive: true }));

interface Death {
  readonly file: string;
  readonly signal: string | null;
  readonly output: string;
}

function compactingProcess(killAt: number): Promise<Death> {
  const file = join(folder, `run-${killAt}.sqlite`);
  copyFileSync(join(folder, "seed.sqlite"), file);
  const command = ["--import", "tsx", child, file, String(killAt)];
  return new Promise((resolve) => {
    execFile(process.execPath, command, { timeout: 30_000 }, (error, stdout, stderr) => {
      resolve({ file, signal: error?.signal ?? null, output: `${stdout}${stderr}` });
    });
  });
}

/** Whether the compaction is in the file. Everything else is asserted. */
function inspect(file: string): boolean {
  const store = new Store(file);
  try {
    expect(checkStore(store.database)).toEqual([]);
    const { conversation } = store.resume("run", count);
    const { history, archive } = conversation;
    const isDone = archive.tags.length === 1;
    const kept = history.blocks.flatMap((block) => (block.kind === "memory" ? [] : block.originals));
    const recalled = archive.recall("ctx-0001")?.blocks.flatMap((block) => block.originals) ?? [];
    const all = [...kept, ...recalled].sort((left, right) => left.id - right.id);
    expect(all.map(({ message }) => message)).toEqual(originals);
    expect(history.blocks).toHaveLength(isDone ? 5 : 6);

    if (!isDone) conversation.compact({ start: 1, end: 3 }, "What was read.");
    conversation.exchange(exchangeOf("after"));
    expect(history.blocks.map(({ id }) => id)).toEqual(["r001", "b006", "b003", "b004", "b005", "b007"]);
    expect(checkStore(store.database)).toEqual([]);
    return isDone;
  } finally {
    store.close();
  }
}

test("kill -9 before any statement of a compaction, or right after it, loses nothing", async () => {
  // BEGIN, a look-up, the record, two parts, two places, the memory, COMMIT; then the kill after it.
  const kills = 10;
  const deaths: Death[] = [];
  // Starting a process is what costs: a few at a time.
  for (let start = 0; start <= kills; start += 4) {
    const places = Array.from({ length: Math.min(4, kills + 1 - start) }, (_, offset) => start + offset);
    deaths.push(...(await Promise.all(places.map(compactingProcess))));
  }
  const survivor = deaths.pop()!;
  expect(survivor).toMatchObject({ signal: null, output: `survived ${kills}\n` });
  expect(inspect(survivor.file)).toBe(true);
  expect(deaths.map(({ signal }) => signal)).toEqual(deaths.map(() => "SIGKILL"));
  expect(deaths.map(({ file }) => inspect(file))).toEqual(deaths.map((_, place) => place === kills - 1));
}, 60_000);
