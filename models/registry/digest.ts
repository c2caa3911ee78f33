// SHA-256 of files, read in pieces. A file's digest is what makes a source trustworthy here, whoever sent it.
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";

/** Lower-case hex of the files' bytes, one after another. `onBytes` is told how many were read since last. */
export async function sha256OfFiles(
  files: readonly string[],
  onBytes: (count: number) => void = () => {},
): Promise<string> {
  const hash = createHash("sha256");
  for (const file of files)
    for await (const piece of createReadStream(file, { highWaterMark: 1 << 20 })) {
      hash.update(piece as Buffer);
      onBytes((piece as Buffer).length);
    }
  return hash.digest("hex");
}
