// Opens a model folder as the server would, or just its runner, with a pool as large as the benchmark needs.
import { join } from "node:path";
import {
  type LinearKind,
  type Manifest,
  modelFolderName,
  readManifest,
  type WeightFormat,
  weightFormats,
} from "../../models/manifest.ts";
import { type LocalModel, openLocalModel } from "../../src/cli/local-model.ts";
import { packageRoot, runtimeLibrary } from "../../src/cli/package-root.ts";
import { Config } from "../../src/config/config.ts";
import { type KvType, openRunner, type Runner } from "../../src/engine/addon.ts";

/** `id`, `id.format` or `id.format.ort`; format and operator are the configured ones if no format is named. */
export function folderOf(name: string): string {
  const config = Config.read({ flags: {}, environment: process.env });
  const directory = config.text("models.dir");
  const named = weightFormats.some(
    (format) => name.endsWith(`.${format}`) || name.endsWith(`.${format}.ort`),
  );
  if (named) return join(directory, name);
  const format = config.choice("weights") as WeightFormat;
  return join(directory, modelFolderName(name, format, config.choice("linear") as LinearKind));
}

export interface RunnerChoice {
  readonly tokens: number;
  readonly kvType: KvType;
  readonly activations: keyof Manifest["graphs"];
  /** Absent: as configured. */
  readonly threads?: number;
}

export async function openBenchRunner(
  folder: string,
  choice: RunnerChoice,
): Promise<{ runner: Runner; manifest: Manifest }> {
  const root = packageRoot();
  const manifest = readManifest(folder);
  const runner = await openRunner(
    {
      model: {
        ...manifest.shapes,
        graph: join(folder, manifest.graphs[choice.activations]),
        ropeBase: manifest.rope.base,
        digest: `${manifest.digest} ${choice.activations}`,
      },
      runtime: runtimeLibrary(root),
      device: "cpu",
      pages: Math.ceil(choice.tokens / 16),
      pageSize: 16,
      kvType: choice.kvType,
      threads: choice.threads ?? Config.read({ flags: {}, environment: process.env }).number("threads"),
    },
    root,
  );
  return { runner, manifest };
}

export async function openBenchServer(folder: string, tokens: number): Promise<LocalModel> {
  const config = Config.read({ flags: { "cache.tokens": String(tokens) }, environment: process.env });
  return openLocalModel(folder, config);
}
