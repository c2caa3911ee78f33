// kill -9 at every statement of a compaction. Another process then opens the store and must find the run
// either before or after the compaction, with every original, and be able to continue it.
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

interface Exit {
  readonly file: string;
  readonly signal: string | null;
  readonly output: string;
}

function compactingProcess(killAt: number): Promise<Exit> {
  const file = join(folder, `run-${killAt}.sqlite`);
  copyFileSync(join(folder, "seed.sqlite"), file);
  const command = ["--import", "tsx", child, file, String(killAt)];
  return new Promise((resolve) => {
    execFile(process.execPath, command, { timeout: 30_000 }, (error, stdout, stderr) => {
      resolve({ file, signal: error?.signal ?? null, output: `${stdout}${stderr}` });
    });
  });
}

/** Returns whether the compaction is in the file; asserts everything else. */
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

test("a process that is killed before any statement of a compaction, or right after it, loses nothing", async () => {
  // BEGIN, a SELECT, the record, two parts, two UPDATEs of place, the memory, COMMIT; then the kill after the
  // commit.
  const kills = 10;
  const exits: Exit[] = [];
  // Starting a process is slow, so four run at a time.
  for (let start = 0; start <= kills; start += 4) {
    const indices = Array.from({ length: Math.min(4, kills + 1 - start) }, (_, offset) => start + offset);
    exits.push(...(await Promise.all(indices.map(compactingProcess))));
  }
  const survivor = exits.pop()!;
  expect(survivor).toMatchObject({ signal: null, output: `survived ${kills}\n` });
  expect(inspect(survivor.file)).toBe(true);
  expect(exits.map(({ signal }) => signal)).toEqual(exits.map(() => "SIGKILL"));
  expect(exits.map(({ file }) => inspect(file))).toEqual(exits.map((_, index) => index === kills - 1));
}, 60_000);
