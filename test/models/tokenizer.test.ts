import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Template } from "@huggingface/jinja";
import { Tokenizer } from "@huggingface/tokenizers";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { realModel } from "../support/real-models.ts";
import { ensureTinyModel } from "../support/tiny-model.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "pocket-tokenizer-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

function load(model: string): {
  tokenizer: Tokenizer;
  config: { chat_template?: string; eos_token: string };
} {
  const read = (name: string) => JSON.parse(readFileSync(join(model, name), "utf8"));
  const config = read("tokenizer_config.json");
  return { tokenizer: new Tokenizer(read("tokenizer.json"), config), config };
}

describe("the tokenizer of an imported model", () => {
  it("merges, keeps control tokens whole and restores any text", async () => {
    for (const family of ["qwen2", "llama"] as const) {
      const { tokenizer } = load(await ensureTinyModel(folder, { family, id: family }));
      const encode = (text: string) => tokenizer.encode(text, { add_special_tokens: false }).ids;
      expect(encode(" the").length).toBe(1);
      expect(encode("12").length).toBe(2);
      expect(encode("<|im_start|>user\n")).toEqual([277, 275, 10]);
      fc.assert(
        fc.property(fc.string({ unit: "grapheme", minLength: 1 }), (text) => {
          const whole = family === "qwen2" ? text.normalize("NFC") : text;
          expect(tokenizer.decode(encode(text), { skip_special_tokens: false })).toBe(whole);
        }),
        { numRuns: 60 },
      );
    }
  });

  it("has a template that renders a chat", async () => {
    const { config } = load(await ensureTinyModel(folder, { id: "templated" }));
    const text = new Template(config.chat_template!).render({
      messages: [
        { role: "system", content: "Be brief." },
        { role: "user", content: "Hello" },
      ],
      add_generation_prompt: true,
    });
    expect(text).toBe(
      "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n",
    );
    expect(config.eos_token).toBe("<|im_end|>");
  });

  it("starts every prompt with the BOS token where the file says so", async () => {
    const made = await ensureTinyModel(folder, {
      id: "bos",
      metadata: { "tokenizer.ggml.add_bos_token": true },
    });
    const { tokenizer } = load(made);
    expect(tokenizer.encode("a").ids[0]).toBe(276);
    expect(JSON.parse(readFileSync(join(made, "manifest.json"), "utf8")).tokens.bos).toBe(276);
  });
});

interface Golden {
  readonly prompts: readonly { name: string; text: string; tokens: number[] }[];
  readonly strings: readonly { name: string; tokens: number[] }[];
}

describe("the tokenizers of real models", () => {
  for (const id of ["qwen2.5-coder-0.5b", "smollm2-135m"]) {
    const golden = new URL(`../golden/${id}.json`, import.meta.url);
    const { folder: model, missing } = realModel(id);
    it(`give the ids of the publisher's tokenizer for the golden texts (${id})`, (context) => {
      if (missing) return context.skip(missing);
      const { prompts, strings } = JSON.parse(readFileSync(golden, "utf8")) as Golden;
      const inputs = JSON.parse(readFileSync(new URL("../golden/prompts.json", import.meta.url), "utf8")) as {
        strings: readonly { name: string; text: string }[];
      };
      const { tokenizer } = load(model);
      const encode = (text: string) => tokenizer.encode(text, { add_special_tokens: false }).ids;
      for (const { name, text, tokens } of prompts) expect([name, encode(text)]).toEqual([name, tokens]);
      for (const { name, tokens } of strings) {
        const { text } = inputs.strings.find((input) => input.name === name)!;
        expect([name, encode(text)]).toEqual([name, tokens]);
      }
    });
  }
});
