// SHA-256 of files, read in chunks.
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";

/** SHA-256 of the files' concatenated bytes, in lower-case hex. `onBytes` gets the bytes read since its last call. */
export async function sha256OfFiles(
  files: readonly string[],
  onBytes: (count: number) => void = () => {},
): Promise<string> {
  const hash = createHash("sha256");
  for (const file of files)
    for await (const chunk of createReadStream(file, { highWaterMark: 1 << 20 })) {
      hash.update(chunk as Buffer);
      onBytes((chunk as Buffer).length);
    }
  return hash.digest("hex");
}
