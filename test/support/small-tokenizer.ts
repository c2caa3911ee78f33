// A small byte-level BPE tokenizer for tests without a model: all bytes, a dozen merges, ChatML's control tokens and
// one added token that is not special.
import { alphabetCharacter } from "../../src/text/byte-alphabet.ts";
import { Renderer } from "../../src/text/render.ts";
import { ChatTemplate } from "../../src/text/template.ts";
import { Tokenizer } from "../../src/text/tokenizer.ts";

const merges = ["t h", "th e", "Ġ the", "i n", "a n", "an d", "Ġ and", "e r", "l l", "o u", "y ou", "Ċ Ċ"];
const added = ["<|end|>", "<|im_start|>", "<|im_end|>", "<note>"];

export const chatml =
  "{% for message in messages %}{% if loop.first and message['role'] != 'system' %}" +
  "{{ '<|im_start|>system\nBe kind.<|im_end|>\n' }}{% endif %}" +
  "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}" +
  "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

export function smallTokenizerFiles(): [tokenizer: unknown, config: unknown] {
  const entries = [
    ...Array.from({ length: 256 }, (_, byte) => alphabetCharacter(byte)),
    ...merges.map((merge) => merge.replace(" ", "")),
  ];
  const tokenizer = {
    version: "1.0",
    added_tokens: added.map((content, index) => ({
      id: entries.length + index,
      content,
      special: content !== "<note>",
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
    })),
    normalizer: { type: "NFC" },
    pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, trim_offsets: false, use_regex: true },
    post_processor: { type: "ByteLevel", add_prefix_space: false, trim_offsets: false, use_regex: false },
    decoder: { type: "ByteLevel", add_prefix_space: false, trim_offsets: false, use_regex: false },
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: "",
      end_of_word_suffix: "",
      fuse_unk: false,
      byte_fallback: false,
      vocab: Object.fromEntries(entries.map((entry, id) => [entry, id])),
      merges,
      ignore_merges: false,
    },
  };
  return [tokenizer, { chat_template: chatml, eos_token: "<|im_end|>" }];
}

export interface SmallText {
  readonly tokenizer: Tokenizer;
  readonly template: ChatTemplate;
  readonly renderer: Renderer;
  readonly stopTokens: ReadonlySet<number>;
}

export function smallText(source = chatml): SmallText {
  const tokenizer = new Tokenizer(...smallTokenizerFiles());
  const template = new ChatTemplate(source, { addedTokens: tokenizer.addedTokens });
  const stopTokens = new Set([tokenizer.idOf("<|im_end|>")!, tokenizer.idOf("<|end|>")!]);
  return { tokenizer, template, stopTokens, renderer: new Renderer(tokenizer, template, stopTokens) };
}
