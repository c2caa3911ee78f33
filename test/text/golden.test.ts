// The prompts of real models, rendered and encoded here, against the ids that the publisher's own pipeline gives
// for the same messages (test/golden, made by scripts/golden.py).
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Message, Tool } from "../../src/chat/chat.ts";
import { Renderer } from "../../src/text/render.ts";
import { tokensOf } from "../../src/text/span.ts";
import { ChatTemplate, templateSource } from "../../src/text/template.ts";
import { Tokenizer } from "../../src/text/tokenizer.ts";
import { realModel } from "../support/real-models.ts";

interface GoldenMessage {
  readonly role: Message["role"];
  readonly content: string;
  readonly tool_calls?: readonly {
    readonly function: { readonly name: string; readonly arguments: unknown };
  }[];
}

interface GoldenInput {
  readonly name: string;
  readonly text?: string;
  readonly messages?: readonly GoldenMessage[];
  readonly tools?: readonly { readonly function: Tool }[];
}

const inputs = read(new URL("../golden/prompts.json", import.meta.url).pathname) as {
  readonly prompts: readonly GoldenInput[];
  readonly strings: readonly { readonly name: string; readonly text: string }[];
};

describe("the prompts of real models", () => {
  for (const id of ["qwen2.5-coder-0.5b", "smollm2-135m"]) {
    const { folder, missing } = realModel(id);

    it(`have the ids of the publisher's pipeline (${id})`, (context) => {
      if (missing) return context.skip(missing);
      const golden = read(new URL(`../golden/${id}.json`, import.meta.url).pathname) as {
        readonly prompts: readonly {
          readonly name: string;
          readonly text: string;
          readonly tokens: number[];
        }[];
        readonly strings: readonly { readonly name: string; readonly tokens: number[] }[];
      };
      const { tokenizer, renderer } = load(folder);
      for (const { name, text, tokens } of golden.prompts) {
        const input = inputs.prompts.find((candidate) => candidate.name === name);
        const ids = input?.messages
          ? tokensOf(renderer.render(input.messages.map(messageOf), toolsOf(input)).spans)
          : tokenizer.encodeTemplate(text);
        expect([name, Array.from(ids)]).toEqual([name, tokens]);
        expect(tokenizer.decode(ids)).toBe(text.normalize("NFC"));
      }
      for (const { name, tokens } of golden.strings) {
        const { text } = inputs.strings.find((candidate) => candidate.name === name)!;
        expect([name, Array.from(tokenizer.encodeTemplate(text))]).toEqual([name, tokens]);
        // The same text from a user never holds a control token, and spells the same.
        const content = tokenizer.encodeContent(text);
        for (const { id: control } of tokenizer.addedTokens) expect(content).not.toContain(control);
        expect(tokenizer.decode(content)).toBe(tokenizer.decode(tokens));
      }
    });
  }
});

function load(folder: string): { readonly tokenizer: Tokenizer; readonly renderer: Renderer } {
  const config = read(join(folder, "tokenizer_config.json"));
  const manifest = read(join(folder, "manifest.json")) as { readonly tokens: { readonly eos: number[] } };
  const tokenizer = new Tokenizer(read(join(folder, "tokenizer.json")), config);
  const template = new ChatTemplate(templateSource(config), { addedTokens: tokenizer.addedTokens });
  return { tokenizer, renderer: new Renderer(tokenizer, template, new Set(manifest.tokens.eos)) };
}

function messageOf({ role, content, tool_calls }: GoldenMessage): Message {
  const toolCalls = tool_calls?.map(({ function: called }, index) => ({
    id: `call-${index}`,
    name: called.name,
    arguments: JSON.stringify(called.arguments),
  }));
  return { role, content, ...(toolCalls ? { toolCalls } : {}) };
}

function toolsOf({ tools = [] }: GoldenInput): Tool[] {
  return tools.map((tool) => tool.function);
}

function read(file: string): unknown {
  return JSON.parse(readFileSync(file, "utf8"));
}
