// The control that must be bad: survivors whose keys still point to where they stood before the edit, as in a server
// that moves cells and forgets to turn them. The product has no such path, and its calls cannot be put together to
// one: index, birth and key always agree. So a saved sequence is changed between `save` and `load`: every birth is
// overwritten with the cell's index, keys and values stay. Layout and checksum are those of native/kv/file.h and
// native/kv/checksum.h; a layout that this file does not know is refused.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Runner, SequenceId } from "../../src/engine/addon.ts";

const headerBytes = 256;
const layoutVersion = 1;
/** Numbers of sections seed their checksums; the list of cells is section 1. */
const cellsSection = 1n;

/** A copy of the sequence in which no query is turned for any cell. The runner needs a digest. */
export async function withoutRotation(runner: Runner, id: SequenceId): Promise<SequenceId> {
  const folder = mkdtempSync(join(tmpdir(), "pocket-no-rotation-"));
  const file = join(folder, "sequence.kv");
  try {
    await runner.save(id, file);
    const bytes = readFileSync(file);
    forgetBirths(bytes);
    writeFileSync(file, bytes);
    return await runner.load(file);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

function forgetBirths(bytes: Buffer): void {
  const version = bytes.readUInt32LE(8);
  if (bytes.toString("latin1", 0, 8) !== "POCKETKV" || version !== layoutVersion) {
    throw new Error(
      `This is a KV file of layout ${version}; no-rotation.ts knows layout ${layoutVersion}: bring it up to date.`,
    );
  }
  const cells = bytes.readInt32LE(28);
  const births = headerBytes + 4 * cells;
  for (let cell = 0; cell < cells; cell++) bytes.writeInt32LE(cell, births + 4 * cell);
  const end = births + 4 * cells;
  bytes.writeBigUInt64LE(checksum(bytes.subarray(headerBytes, end), cellsSection), end);
}

const mask = (1n << 64n) - 1n;
const odd = 0x9e3779b97f4a7c15n;
const other = 0xd6e8feb86659fd93n;

/** native/kv/checksum.h, for lengths that are multiples of 8. */
function checksum(bytes: Buffer, seed: bigint): bigint {
  const turn = (x: bigint, by: bigint) => ((x << by) | (x >> (64n - by))) & mask;
  const lanes = [(seed + odd) & mask, seed ^ other, (seed * odd + 1n) & mask, ~seed & mask];
  for (let at = 0; at < bytes.length; at += 8) {
    const lane = (at / 8) % 4;
    lanes[lane] = (turn(lanes[lane]! ^ bytes.readBigUInt64LE(at), 29n) * odd) & mask;
  }
  let sum = (BigInt(bytes.length) * other) & mask;
  for (const lane of lanes) sum = (turn(sum, 17n) + lane) & mask;
  sum = ((sum ^ (sum >> 32n)) * other) & mask;
  sum = ((sum ^ (sum >> 29n)) * odd) & mask;
  return sum ^ (sum >> 32n);
}
