// A chat on the real engine with the seeded tiny model. It uses f32 throughout, so that two ways to the same cells differ
// only by the order of sums.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { readManifest } from "../../models/manifest.ts";
import { packageRoot, runtimeLibrary } from "../../src/cli/package-root.ts";
import { openRunner, type Runner } from "../../src/engine/addon.ts";
import { Engine } from "../../src/engine/engine.ts";
import { greedy } from "../../src/engine/job.ts";
import { LocalChat, type LocalChatOptions } from "../../src/session/local-chat.ts";
import { Renderer } from "../../src/text/render.ts";
import { ChatTemplate } from "../../src/text/template.ts";
import { Tokenizer } from "../../src/text/tokenizer.ts";
import { ensureTinyModel } from "./tiny-model.ts";

export interface TinyChat {
  readonly engine: Engine;
  readonly runner: Runner;
  readonly chat: LocalChat;
  close(): Promise<void>;
}

/** Each name has its own model folder, because test files may run at the same time. */
export async function openTinyChat(
  name: string,
  options: Partial<LocalChatOptions> & { readonly pages?: number } = {},
): Promise<TinyChat> {
  const root = packageRoot();
  const folder = await ensureTinyModel(join(root, "build", "tiny", name), { context: 8192 });
  const { digest, shapes, rope, graphs, tokens } = readManifest(folder);
  const runner = await openRunner(
    {
      model: { ...shapes, graph: join(folder, graphs.f32), digest, ropeBase: rope.base },
      runtime: runtimeLibrary(root),
      device: "cpu",
      pages: options.pages ?? 1024,
      pageSize: 16,
      kvType: "f32",
      threads: 2,
    },
    root,
  );
  const engine = new Engine(runner, { stepTokens: 512 });
  const read = (file: string) => JSON.parse(readFileSync(join(folder, file), "utf8")) as unknown;
  const config = read("tokenizer_config.json") as { readonly chat_template: string };
  const tokenizer = new Tokenizer(read("tokenizer.json"), config);
  const template = new ChatTemplate(config.chat_template, { addedTokens: tokenizer.addedTokens });
  const stopTokens = new Set(tokens.eos);
  const renderer = new Renderer(tokenizer, template, stopTokens);
  const chat = new LocalChat({
    engine,
    tokenizer,
    renderer,
    stopTokens,
    sessionsMax: 32,
    sampling: greedy,
    ...options,
  });
  return {
    engine,
    runner,
    chat,
    async close() {
      await chat.close();
      await engine.close();
    },
  };
}
