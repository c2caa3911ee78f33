// Paths of this package, run from src/ or dist/, and of the ONNX Runtime library in its npm package.
import { existsSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { pocketError } from "../errors.ts";

/** The nearest parent folder that has both CMakeLists.txt and package.json. */
export function packageRoot(): string {
  let folder = dirname(fileURLToPath(import.meta.url));
  while (!existsSync(join(folder, "CMakeLists.txt")) && folder !== dirname(folder)) folder = dirname(folder);
  return folder;
}

/** Throws RUNTIME_MISSING when the package has no library for this platform. */
export function runtimeLibrary(root: string): string {
  const binaries = join(root, "node_modules", "onnxruntime-node", "bin");
  const platform = join(process.platform, process.arch);
  const folders = existsSync(binaries)
    ? readdirSync(binaries).map((abi) => join(binaries, abi, platform))
    : [];
  const found = folders
    .filter((folder) => existsSync(folder))
    .flatMap((folder) => readdirSync(folder).map((name) => join(folder, name)))
    .find((path) => /[/\\](lib)?onnxruntime[^/\\]*\.(so\.\d+|dylib|dll)$/.test(path));
  if (found === undefined) {
    throw pocketError(
      "RUNTIME_MISSING",
      binaries,
      `there is no library for ${process.platform} ${process.arch}`,
    );
  }
  return found;
}
