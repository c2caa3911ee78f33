// Where the other projects' programs and models are: a folder outside the repository that scripts/peers fills.
// Nothing here fetches or builds.
import { existsSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { basename, join } from "node:path";

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

/** The interpreter that has ONNX Runtime GenAI. Throws when it is not there. */
export function genaiPython(): string {
  const path = join(peersFolder(), "genai/venv/bin/python");
  if (existsSync(path)) return path;
  throw new Error(`There is no ${path}; scripts/peers genai FILE.gguf installs it (1.3 GB).`);
}

/** The interpreter that has torch and transformers. Throws when it is not there. */
export function transformersPython(): string {
  const path = join(peersFolder(), "transformers/venv/bin/python");
  if (existsSync(path)) return path;
  throw new Error(`There is no ${path}; scripts/peers transformers installs it (1 GB).`);
}

/** The folder that was built of this GGUF file. Throws when there is none, or it was built of other weights. */
export function genaiModel(gguf: string, sha256: string): string {
  const folder = join(peersFolder(), "genai/models", basename(gguf, ".gguf"));
  const source = join(folder, "source.sha256");
  const built = existsSync(source) ? readFileSync(source, "utf8").trim() : undefined;
  if (built === sha256) return folder;
  const found = built === undefined ? "There is no model in" : `Made from a file of SHA-256 ${built} is`;
  throw new Error(`${found} ${folder}; scripts/peers genai ${gguf} builds it (one to two minutes).`);
}
