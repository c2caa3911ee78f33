// A folder in the place of PEERS_DIR, filled with scripts that stand for other projects' programs.
import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { vi } from "vitest";

export class PeersFolder {
  readonly path = mkdtempSync(join(tmpdir(), "pocket-peers-"));

  constructor() {
    vi.stubEnv("PEERS_DIR", this.path);
  }

  /** Writes an executable file. Gives its path. */
  place(path: string, text: string): string {
    const file = join(this.path, path);
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, text);
    chmodSync(file, 0o755);
    return file;
  }

  remove(): void {
    vi.unstubAllEnvs();
    rmSync(this.path, { recursive: true });
  }
}
