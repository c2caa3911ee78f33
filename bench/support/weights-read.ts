// How many bytes of weights one decode step must read: all of them but the embedding, of which it reads a row,
// unless the embedding is also the output head. Counted in the source file, because that is the least that its
// values can be stored in; how a model folder or a peer stores them is its own affair.
import { existsSync, statSync } from "node:fs";
import { join } from "node:path";
import type { Manifest } from "../../models/manifest.ts";
import { openGguf } from "../../models/readers/gguf.ts";
import { sha256OfFiles } from "../../models/registry/digest.ts";

export function weightsRead(gguf: string): number {
  const file = openGguf(gguf);
  try {
    const isTied = !file.tensors.has("output.weight");
    const read = [...file.tensors.values()].filter(({ name }) => isTied || name !== "token_embd.weight");
    return read.reduce((sum, { bytes }) => sum + bytes, 0);
  } finally {
    file.close();
  }
}

/** The GGUF file that the model folder was made from, in one of the folders, by name and digest. */
export async function sourceFile({ id, source }: Manifest, folders: readonly string[]): Promise<string> {
  for (const path of folders.map((folder) => join(folder, source.file))) {
    if (!existsSync(path) || statSync(path).size !== source.bytes) continue;
    if ((await sha256OfFiles([path])) === source.sha256) return path;
  }
  throw new Error(
    `${id} was made from ${source.file}, ${source.bytes} bytes, which is in none of ${folders.join(", ")}; ` +
      "name the folder that has it with --gguf.",
  );
}
