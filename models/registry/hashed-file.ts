// A file that is appended to and hashed while it is written. A partial file of an earlier attempt can be continued: its
// bytes are read once to bring the hash up to date.
import { createHash, type Hash } from "node:crypto";
import { createReadStream } from "node:fs";
import { type FileHandle, open, rm } from "node:fs/promises";
import { diskError } from "./disk-errors.ts";

export class HashedFile {
  private constructor(
    readonly path: string,
    private readonly handle: FileHandle,
    private hash: Hash,
    private end: number,
  ) {}

  /** Opens or creates the file and keeps its first `keep` bytes (default: all). */
  static async open(path: string, keep = Number.POSITIVE_INFINITY): Promise<HashedFile> {
    const handle = await open(path, "a+");
    try {
      const { size } = await handle.stat();
      const end = Math.min(size, keep);
      if (end < size) await handle.truncate(end);
      const hash = createHash("sha256");
      if (end > 0)
        for await (const chunk of createReadStream(path, { end: end - 1 })) hash.update(chunk as Buffer);
      return new HashedFile(path, handle, hash, end);
    } catch (cause) {
      await handle.close();
      throw cause;
    }
  }

  get bytes(): number {
    return this.end;
  }

  /** Throws DISK_FULL; bytes of earlier calls are kept. */
  async append(chunk: Uint8Array): Promise<void> {
    try {
      await this.handle.appendFile(chunk);
    } catch (cause) {
      throw diskError(cause, this.path);
    }
    this.hash.update(chunk);
    this.end += chunk.length;
  }

  async restart(): Promise<void> {
    await this.handle.truncate(0);
    this.hash = createHash("sha256");
    this.end = 0;
  }

  sha256(): string {
    return this.hash.copy().digest("hex");
  }

  close(): Promise<void> {
    return this.handle.close();
  }

  async remove(): Promise<void> {
    await this.handle.close();
    await rm(this.path, { force: true });
  }
}
