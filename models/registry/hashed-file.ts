// A file that is written from front to back and hashed on the way, and can be taken up again where an earlier
// attempt stopped: its old bytes are read once to bring the hash up to date.
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

  /** Opens or makes the file and keeps its first `keep` bytes (all of them by default). */
  static async open(path: string, keep = Number.POSITIVE_INFINITY): Promise<HashedFile> {
    const handle = await open(path, "a+");
    try {
      const { size } = await handle.stat();
      const end = Math.min(size, keep);
      if (end < size) await handle.truncate(end);
      const hash = createHash("sha256");
      if (end > 0)
        for await (const piece of createReadStream(path, { end: end - 1 })) hash.update(piece as Buffer);
      return new HashedFile(path, handle, hash, end);
    } catch (cause) {
      await handle.close();
      throw cause;
    }
  }

  get bytes(): number {
    return this.end;
  }

  /** Throws DISK_FULL; what was written before stays. */
  async append(piece: Uint8Array): Promise<void> {
    try {
      await this.handle.appendFile(piece);
    } catch (cause) {
      throw diskError(cause, this.path);
    }
    this.hash.update(piece);
    this.end += piece.length;
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
