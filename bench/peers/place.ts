// Where the binaries of other projects are: a folder outside the repository that scripts/peers fills. Nothing here
// fetches or builds.
import { existsSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";

/** PEERS_DIR, else `pocket-peers` in the user's cache folder; as in scripts/peers. */
export function peersFolder(environment: NodeJS.ProcessEnv = process.env): string {
  const cache = environment.XDG_CACHE_HOME || join(homedir(), ".cache");
  return environment.PEERS_DIR || join(cache, "pocket-peers");
}

/** Path of `llama-server`, `llama-bench` or `llama-quantize`. Throws when it is not there. */
export function llamaBinary(name: string): string {
  const path = join(peersFolder(), "llama.cpp", name);
  if (existsSync(path)) return path;
  throw new Error(`There is no ${name} in ${peersFolder()}; scripts/peers builds it (about five minutes).`);
}
