// A model folder's tokenizer and chat template, and its prompts as spans. As the server opens them, without one.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { type Manifest, readManifest } from "../../models/manifest.ts";
import type { Message } from "../../src/chat/chat.ts";
import { Renderer } from "../../src/text/render.ts";
import type { Span } from "../../src/text/span.ts";
import { ChatTemplate } from "../../src/text/template.ts";
import { Tokenizer } from "../../src/text/tokenizer.ts";

export class ModelText {
  readonly manifest: Manifest;
  readonly tokenizer: Tokenizer;
  readonly #renderer: Renderer;

  constructor(folder: string) {
    const read = (name: string) => JSON.parse(readFileSync(join(folder, name), "utf8")) as unknown;
    this.manifest = readManifest(folder);
    const config = read("tokenizer_config.json") as { readonly chat_template?: string };
    this.tokenizer = new Tokenizer(read("tokenizer.json"), config);
    const { bos, eos } = this.manifest.tokens;
    const written = (id: number | null | undefined) =>
      this.tokenizer.addedTokens.find((token) => token.id === id)?.content ?? "";
    const template = new ChatTemplate(config.chat_template ?? "", {
      addedTokens: this.tokenizer.addedTokens,
      bosToken: written(bos),
      eosToken: written(eos[0]),
    });
    this.#renderer = new Renderer(this.tokenizer, template, new Set(eos));
  }

  get stopTokens(): ReadonlySet<number> {
    return new Set(this.manifest.tokens.eos);
  }

  spans(messages: readonly Message[]): readonly Span[] {
    return this.#renderer.render(messages, [], { addGenerationPrompt: false }).spans;
  }

  /** What `messages` and the generation prompt add behind `before`. */
  turn(before: readonly Message[], messages: readonly Message[]): readonly Span[] {
    const head = this.spans(before);
    const { spans } = this.#renderer.render([...before, ...messages], []);
    const differs = head.findIndex(({ key }, index) => key !== spans[index]!.key);
    if (differs >= 0) throw new Error(`The chat template rewrites span ${differs} when a turn follows.`);
    return spans.slice(head.length);
  }

  countOf(text: string): number {
    return this.tokenizer.encodeContent(text).length;
  }
}
