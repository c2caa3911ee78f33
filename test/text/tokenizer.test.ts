import { Tokenizer as Library } from "@huggingface/tokenizers";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { alphabetCharacter } from "../../src/text/byte-alphabet.ts";
import { Detokenizer } from "../../src/text/detokenizer.ts";
import { Tokenizer } from "../../src/text/tokenizer.ts";
import { smallText, smallTokenizerFiles } from "../support/small-tokenizer.ts";

const { tokenizer } = smallText();
const controls = tokenizer.addedTokens.map(({ content }) => content);
/** Text in which control tokens, scripts and broken-up characters are common. */
const text = fc
  .array(
    fc.oneof(
      fc.constantFrom(...controls, "<|im_", "the and you", "\n\n", "🫠", "𠮷", "👩‍👩‍👧", "\ufeff", "é"),
      fc.string({ unit: "binary" }),
    ),
    { maxLength: 12 },
  )
  .map((parts) => parts.join(""));

describe("the tokenizer", () => {
  it("gives back content exactly, up to NFC, and never makes a control token of it", () => {
    fc.assert(
      fc.property(text, (content) => {
        const ids = tokenizer.encodeContent(content);
        expect(tokenizer.decode(ids)).toBe(content.normalize("NFC"));
        for (const { id } of tokenizer.addedTokens) expect(ids).not.toContain(id);
      }),
    );
  });

  it("encodes template text as the library does with its added tokens", () => {
    const library = new Library(...(smallTokenizerFiles() as [object, object]));
    fc.assert(
      fc.property(text, (template) => {
        const expected = library.encode(template, { add_special_tokens: false }).ids;
        expect(Array.from(tokenizer.encodeTemplate(template))).toEqual(expected);
      }),
    );
  });

  it("knows the exact bytes of ids that are no characters by themselves", () => {
    const ids = tokenizer.encodeContent("🫠");
    expect(ids).toHaveLength(4);
    expect(Array.from(ids, (id) => Array.from(tokenizer.bytesOf(id))).flat()).toEqual(
      Array.from(new TextEncoder().encode("🫠")),
    );
    expect(tokenizer.bytesOf(tokenizer.size + 5)).toHaveLength(0);
  });

  it("leaves out a byte that the vocabulary lacks, even if the file names an unknown token", () => {
    const [file, config] = smallTokenizerFiles() as [{ model: { vocab: Record<string, number> } }, unknown];
    const { [alphabetCharacter(0)]: _, ...vocab } = file.model.vocab;
    const lacking = new Tokenizer({ ...file, model: { ...file.model, vocab, unk_token: "<|end|>" } }, config);
    expect(lacking.encodeContent("a\u0000b")).toEqual(lacking.encodeContent("ab"));
    expect(lacking.decode(lacking.encodeContent("a\u0000b"))).toBe("ab");
  });

  it("refuses a tokenizer that is not byte-level BPE and says what it is", () => {
    const unigram = {
      model: { type: "Unigram", vocab: [] },
      decoder: { type: "Metaspace" },
      added_tokens: [],
    };
    expect(() => new Tokenizer(unigram, {})).toThrow(/Unigram with Metaspace decoder/);
  });

  it("puts a first token in front only where the model declares one", () => {
    const [file] = smallTokenizerFiles();
    expect(tokenizer.bos).toBeUndefined();
    const declared = new Tokenizer(file, { add_bos_token: true, bos_token: { content: "<|end|>" } });
    expect(declared.bos).toBe(tokenizer.idOf("<|end|>"));
  });
});

describe("the streaming decoder", () => {
  it("never shows U+FFFD for a character that is spread over tokens", () => {
    const clean = text.filter(
      (content) => Buffer.from(content).toString() === content && !content.includes("\ufffd"),
    );
    fc.assert(
      fc.property(clean, (content) => {
        const decoder = new Detokenizer(tokenizer);
        const parts = Array.from(tokenizer.encodeContent(content), (id) => decoder.push(id));
        for (const part of parts) expect(part).not.toContain("\ufffd");
        expect(decoder.flush()).toBe("");
        expect(parts.join("")).toBe(content.normalize("NFC"));
      }),
    );
  });

  it("marks an answer that was cut inside a character, once, at its end", () => {
    const decoder = new Detokenizer(tokenizer);
    const ids = tokenizer.encodeContent("a🫠").slice(0, 3);
    expect(Array.from(ids, (id) => decoder.push(id)).join("")).toBe("a");
    expect(decoder.flush()).toBe("\ufffd");
  });
});
