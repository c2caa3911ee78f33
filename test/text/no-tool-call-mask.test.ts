import { describe, expect, it } from "vitest";
import { NoToolCallMask } from "../../src/text/no-tool-call-mask.ts";
import { Tokenizer } from "../../src/text/tokenizer.ts";
import { smallTokenizerFiles } from "../support/small-tokenizer.ts";

/** The small tokenizer with a tag for calls among its added tokens. */
function tagged(): Tokenizer {
  const [file, config] = smallTokenizerFiles() as [
    { added_tokens: { id: number; content: string }[] },
    unknown,
  ];
  const last = file.added_tokens.at(-1)!;
  const call = { ...last, id: last.id + 1, content: "<tool_call>", special: false };
  return new Tokenizer({ ...file, added_tokens: [...file.added_tokens, call] }, config);
}

describe("an answer that may not be a call", () => {
  const tokenizer = tagged();
  const allows = (mask: Int32Array, text: string) => {
    const [id] = tokenizer.encodeTemplate(text);
    return ((mask[id! >> 5]! >>> (id! & 31)) & 1) === 1;
  };

  it("does not begin with the tag or like an object, a fence or a tag, also after spaces", () => {
    const constraint = new NoToolCallMask(tokenizer).start();
    for (const text of ["<tool_call>", "{", "[", "`", "<"])
      expect([text, allows(constraint.mask(), text)]).toEqual([text, false]);
    for (const text of ["a", " ", "\n\n", "the", "7"])
      expect([text, allows(constraint.mask(), text)]).toEqual([text, true]);
    constraint.accept(tokenizer.encodeTemplate(" ")[0]!);
    expect(allows(constraint.mask(), "{")).toBe(false);
  });

  it("may end at once, and after its first word may have any token but the tag", () => {
    const constraint = new NoToolCallMask(tokenizer).start();
    expect(allows(constraint.mask(), "<|im_end|>")).toBe(true);
    constraint.accept(tokenizer.encodeTemplate("a")[0]!);
    for (const text of ["{", "`", "<|im_end|>"]) expect(allows(constraint.mask(), text)).toBe(true);
    expect(allows(constraint.mask(), "<tool_call>")).toBe(false);
  });

  it("covers every id of the vocabulary and shares no state with another answer", () => {
    const masks = new NoToolCallMask(tokenizer);
    const [one, two] = [masks.start(), masks.start()];
    one.accept(tokenizer.encodeTemplate("a")[0]!);
    expect(allows(two.mask(), "{")).toBe(false);
    expect(one.mask().length).toBe(Math.ceil(tokenizer.size / 32));
  });
});
