// Opens a model folder for serving: manifest, engine, tokenizer, template and the sessions on top, as the
// Backend that the server takes. Constructs everything below the server.
import { readFileSync, statSync } from "node:fs";
import { basename, join } from "node:path";
import { type Manifest, manifestFile, readManifest } from "../../models/manifest.ts";
import type { Config } from "../config/config.ts";
import { openRunner, type Runner } from "../engine/addon.ts";
import { Engine } from "../engine/engine.ts";
import type { Backend } from "../server/backend.ts";
import { LocalChat } from "../session/local-chat.ts";
import { Renderer } from "../text/render.ts";
import { ChatTemplate } from "../text/template.ts";
import { Tokenizer } from "../text/tokenizer.ts";
import { localBackend, StepReports } from "./local-backend.ts";
import { packageRoot, runtimeLibrary } from "./package-root.ts";

export interface LocalModel {
  readonly backend: Backend;
  readonly manifest: Manifest;
  /** Lets every session go, to disk where there is one, and all that is kept of earlier ones. Idempotent. */
  release(): Promise<void>;
  /** Ends what runs and frees model and pool. */
  close(): Promise<void>;
}

export interface LocalModelOptions {
  /** Wraps the runner; tests inject faults and count calls. */
  readonly wrap?: (runner: Runner) => Runner;
  /** Receives warnings. Default: standard error. */
  readonly log?: (sentence: string) => void;
}

/** Throws MODEL_NOT_IMPORTED, UNSUPPORTED_MODEL, and what opening the runner throws. */
export async function openLocalModel(
  folder: string,
  config: Config,
  options: LocalModelOptions = {},
): Promise<LocalModel> {
  const manifest = readManifest(folder);
  const steps = new StepReports();
  // The graph is loaded on another thread while the tokenizer is read.
  const opening = openEngine(folder, manifest, config, { ...options, steps });
  const text = Promise.resolve().then(() => readText(folder, manifest));
  const [engine] = await Promise.all([opening, text.catch(() => {})]);
  try {
    const { tokenizer, template } = await text;
    const stopTokens = new Set(manifest.tokens.eos);
    const chat = new LocalChat({
      engine,
      tokenizer,
      renderer: new Renderer(tokenizer, template, stopTokens),
      stopTokens,
      sessionsMax: config.number("sessions.max"),
      sampling: {
        temperature: config.number("sampling.temperature"),
        topK: config.number("sampling.top_k"),
        topP: config.number("sampling.top_p"),
        minP: config.number("sampling.min_p"),
        repetitionPenalty: config.number("sampling.repetition_penalty"),
        frequencyPenalty: 0,
        presencePenalty: 0,
      },
      reuse: config.choice("reuse"),
      repair: config.repair("repair"),
      lookup: config.flag("lookup"),
      ...sessionLife(folder, config),
      log: options.log ?? warn,
    });
    const created = Math.floor(statSync(join(folder, manifestFile)).mtimeMs / 1000);
    const backend = localBackend({ manifest, created, engine, tokenizer, template, chat, steps });
    const release = () => chat.close();
    const close = async () => {
      await release();
      await engine.close();
    };
    return { backend, manifest, release, close };
  } catch (cause) {
    await engine.close();
    throw cause;
  }
}

async function openEngine(
  folder: string,
  manifest: Manifest,
  config: Config,
  { wrap = (runner) => runner, steps }: LocalModelOptions & { readonly steps: StepReports },
): Promise<Engine> {
  const root = packageRoot();
  const pageSize = config.number("cache.page_size");
  const isa = config.choice("isa");
  const { layers, heads, kvHeads, headDim, vocab, context } = manifest.shapes;
  const graph = manifest.graphs[config.choice("activations")];
  const runner = await openRunner(
    {
      model: {
        graph: join(folder, graph),
        layers,
        heads,
        kvHeads,
        headDim,
        vocab,
        context,
        ropeBase: manifest.rope.base,
        digest: `${manifest.digest} ${config.choice("activations")}`,
      },
      runtime: runtimeLibrary(root),
      device: "cpu",
      pages: Math.ceil(config.number("cache.tokens") / pageSize),
      pageSize,
      kvType: config.choice("cache.kv_type"),
      threads: config.number("threads"),
      ...(isa !== "auto" && { isa }),
    },
    root,
  );
  return new Engine(wrap(runner), {
    stepTokens: config.number("step_tokens"),
    gapMs: config.number("gap_ms"),
    onStep: (step) => steps.report(step),
  });
}

/** Lifetime and disk folder of sessions: a folder per model folder and KV type, because files must agree in both. */
function sessionLife(folder: string, config: Config) {
  const ttlSeconds = config.number("sessions.ttl");
  const diskFolder = config.optional("cache.dir");
  return {
    idleRepair: config.flag("idle_repair"),
    ...(ttlSeconds > 0 && { ttlSeconds }),
    ...(diskFolder !== undefined && {
      disk: {
        folder: join(diskFolder, `${basename(folder)}.${config.choice("cache.kv_type")}`),
        bytes: config.number("cache.disk"),
      },
    }),
  };
}

function warn(sentence: string): void {
  process.stderr.write(`pocket: ${sentence}\n`);
}

function readText(folder: string, manifest: Manifest): { tokenizer: Tokenizer; template: ChatTemplate } {
  const read = (name: string) => JSON.parse(readFileSync(join(folder, name), "utf8")) as unknown;
  const tokenizerConfig = read("tokenizer_config.json") as { readonly chat_template?: string };
  const tokenizer = new Tokenizer(read("tokenizer.json"), tokenizerConfig);
  const written = (id: number | null | undefined) =>
    tokenizer.addedTokens.find((token) => token.id === id)?.content;
  const bosToken = written(manifest.tokens.bos);
  const eosToken = written(manifest.tokens.eos[0]);
  const template = new ChatTemplate(tokenizerConfig.chat_template ?? "", {
    addedTokens: tokenizer.addedTokens,
    ...(bosToken !== undefined && { bosToken }),
    ...(eosToken !== undefined && { eosToken }),
  });
  return { tokenizer, template };
}
