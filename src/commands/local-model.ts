// Opens a model folder for serving: manifest, engine, tokenizer, template and the sessions on top, as the
// Backend that the server takes. The wiring diagram of everything below the server; it decides nothing.
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { type Manifest, manifestFile, readManifest } from "../../models/manifest.ts";
import type { Config } from "../config.ts";
import type { Repair, Reuse } from "../context/chat.ts";
import { type KvType, openRunner } from "../engine/addon.ts";
import { Engine } from "../engine/engine.ts";
import type { Backend } from "../server/backend.ts";
import { LocalChat } from "../session/chat.ts";
import { Renderer } from "../text/render.ts";
import { ChatTemplate } from "../text/template.ts";
import { Tokenizer } from "../text/tokenizer.ts";
import { packageRoot, runtimeLibrary } from "./package-root.ts";

export interface LocalModel {
  readonly backend: Backend;
  readonly manifest: Manifest;
  /** Ends what runs and frees model and pool. */
  close(): Promise<void>;
}

/** Throws MODEL_NOT_IMPORTED, UNSUPPORTED_MODEL, and what opening the runner throws. */
export async function openLocalModel(folder: string, config: Config): Promise<LocalModel> {
  const manifest = readManifest(folder);
  // The graph is loaded on a thread of its own; the tokenizer is read meanwhile.
  const opening = openEngine(folder, manifest, config);
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
      reuse: config.text("reuse") as Reuse,
      repair: repairOf(config.text("repair")),
    });
    const created = Math.floor(statSync(join(folder, manifestFile)).mtimeMs / 1000);
    const backend = localBackend(manifest, created, engine, tokenizer, chat);
    return { backend, manifest, close: () => engine.close() };
  } catch (cause) {
    await engine.close();
    throw cause;
  }
}

async function openEngine(folder: string, manifest: Manifest, config: Config): Promise<Engine> {
  const root = packageRoot();
  const pageSize = config.number("cache.page_size");
  const { layers, heads, kvHeads, headDim, vocab, context } = manifest.shapes;
  const graph = manifest.graphs[config.text("activations") as keyof Manifest["graphs"]];
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
      },
      runtime: runtimeLibrary(root),
      device: "cpu",
      pages: Math.ceil(config.number("cache.tokens") / pageSize),
      pageSize,
      kvType: config.text("cache.kv_type") as KvType,
      threads: config.number("threads"),
    },
    root,
  );
  return new Engine(runner, { stepTokens: config.number("step_tokens") });
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

function localBackend(
  manifest: Manifest,
  created: number,
  engine: Engine,
  tokenizer: Tokenizer,
  chat: LocalChat,
): Backend {
  return {
    model: {
      id: manifest.id,
      created,
      context: engine.context,
      vocab: tokenizer.size,
      family: manifest.family,
    },
    chat: (request) => chat.chat(request),
    complete: (request) => chat.complete(request),
    tokenize(text, { addSpecial, parseSpecial }) {
      if (parseSpecial) return chat.tokenize(text, { addSpecial });
      const ids = Array.from(tokenizer.encodeContent(text));
      return addSpecial && tokenizer.bos !== undefined ? [tokenizer.bos, ...ids] : ids;
    },
    detokenize: (tokens) => chat.detokenize(tokens),
    applyTemplate: (messages, tools) => chat.applyTemplate(messages, tools),
    sessions: () => chat.list(),
    deleteSession: (id) => chat.delete(id),
    health() {
      const { broken } = engine;
      const { isa, kvType, threads, runtimeVersion, device } = engine.info;
      return {
        ...(broken && { broken: { message: broken.message, since: broken.since.getTime() } }),
        engine: { ...engine.stats(), device, isa, kvType, threads, runtimeVersion },
      };
    },
  };
}

function repairOf(text: string): Repair {
  const number = Number(text);
  return Number.isNaN(number) ? (text as Repair) : number;
}
