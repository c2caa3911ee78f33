// Converts a byte-level BPE tokenizer (Sennrich et al., 2016, arXiv 1508.07909; bytes as in GPT-2) from GGUF metadata to
// tokenizer.json and tokenizer_config.json of the Hugging Face layout. GGUF only names the pre-tokenizer; a new one is added
// in `preTokenizers`. The files are read by @huggingface/tokenizers (src/text).
import { basename } from "node:path";
import { pocketError } from "../../src/errors.ts";
import type { Gguf, MetadataValue } from "./gguf.ts";

export interface TokenizerFiles {
  /** tokenizer.json */
  readonly tokenizer: object;
  /** tokenizer_config.json, with the chat template if the file has one. */
  readonly config: object;
  /** First token of every prompt; null: none. */
  readonly bos: number | null;
  /** End-of-generation tokens; the one that the file names comes first. */
  readonly eos: readonly number[];
}

/** Throws UNSUPPORTED_MODEL for a tokenizer that is not byte-level BPE or whose pre-tokenizer is unknown. */
export function readTokenizer(gguf: Gguf, context: number): TokenizerFiles {
  const model = gguf.metadata.get("tokenizer.ggml.model");
  if (model !== "gpt2")
    throw pocketError("UNSUPPORTED_MODEL", `Its tokenizer is '${model}'; byte-level BPE ('gpt2') is read.`);
  const pre = String(gguf.metadata.get("tokenizer.ggml.pre") ?? "default");
  if (!Object.hasOwn(preTokenizers, pre)) {
    const known = Object.keys(preTokenizers).join(", ");
    throw pocketError("UNSUPPORTED_MODEL", `Its pre-tokenizer is '${pre}'; ${known} are known.`);
  }
  const tokens = readTokens(gguf);
  const preTokenizer = preTokenizers[pre]!;
  const addBos = gguf.metadata.get("tokenizer.ggml.add_bos_token") ?? preTokenizer.addsBos;
  const bosId = optionalId(gguf, "bos", tokens);
  const bos = addBos === true ? bosId : null;
  const named = (id: number | null) => (id === null ? null : tokens[id]!.text);
  return {
    tokenizer: tokenizerJson(tokens, readMerges(gguf), preTokenizer, bos),
    config: {
      tokenizer_class: preTokenizer.className,
      model_max_length: context,
      add_prefix_space: false,
      add_bos_token: bos !== null,
      clean_up_tokenization_spaces: false,
      bos_token: named(bosId),
      eos_token: named(optionalId(gguf, "eos", tokens)),
      pad_token: named(optionalId(gguf, "padding", tokens)),
      unk_token: null,
      ...chatTemplate(gguf),
    },
    bos,
    eos: endIds(gguf, tokens),
  };
}

interface Token {
  readonly text: string;
  readonly kind: TokenKind;
}
/** Normal tokens result from merges; control and user tokens are matched whole in the text; unused ones are left out. */
type TokenKind = "normal" | "control" | "user" | "unused";
const tokenKinds: Readonly<Record<number, TokenKind>> = {
  1: "normal",
  2: "normal",
  3: "control",
  4: "user",
  5: "unused",
  6: "normal",
};

interface PreTokenizer {
  readonly className: string;
  readonly normalizer: object | null;
  /** Pre-tokenizers in sequence. */
  readonly steps: readonly object[];
  /** A word that is a token as a whole is not built from merges. */
  readonly ignoreMerges: boolean;
  readonly addsBos: boolean;
}

const byteLevel = (useRegex: boolean) => ({
  type: "ByteLevel",
  add_prefix_space: false,
  trim_offsets: false,
  use_regex: useRegex,
});

/** The word pattern of cl100k; `digits` is the pattern of numbers. */
const splitWords = (digits: string) => ({
  type: "Split",
  pattern: {
    Regex: `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`,
  },
  behavior: "Isolated",
  invert: false,
});

/** The publisher's "Digits" step as a pattern: the JavaScript library takes Digits for ASCII digits only. */
const singleDigits = { type: "Split", pattern: { Regex: "\\p{N}" }, behavior: "Isolated", invert: false };

const preTokenizers: Readonly<Record<string, PreTokenizer>> = {
  qwen2: {
    className: "Qwen2Tokenizer",
    normalizer: { type: "NFC" },
    steps: [splitWords("\\p{N}"), byteLevel(false)],
    ignoreMerges: false,
    addsBos: false,
  },
  smollm: {
    className: "GPT2Tokenizer",
    normalizer: null,
    steps: [singleDigits, byteLevel(true)],
    ignoreMerges: false,
    addsBos: false,
  },
  "llama-bpe": {
    className: "PreTrainedTokenizerFast",
    normalizer: null,
    steps: [splitWords("\\p{N}{1,3}"), byteLevel(false)],
    ignoreMerges: true,
    addsBos: true,
  },
  "gpt-2": {
    className: "GPT2Tokenizer",
    normalizer: null,
    steps: [byteLevel(true)],
    ignoreMerges: false,
    addsBos: false,
  },
};

function readTokens(gguf: Gguf): Token[] {
  const texts = strings(gguf, "tokenizer.ggml.tokens");
  const types = gguf.metadata.get("tokenizer.ggml.token_type");
  if (types !== undefined && (!Array.isArray(types) || types.length !== texts.length))
    throw broken(gguf, `tokenizer.ggml.token_type does not match the ${texts.length} tokens`);
  return texts.map((text, id) => {
    const kind = tokenKinds[Number((types as readonly MetadataValue[] | undefined)?.[id] ?? 1)];
    if (!kind) throw broken(gguf, `the token ${id} has the unknown type ${(types as MetadataValue[])[id]}`);
    return { text, kind };
  });
}

function readMerges(gguf: Gguf): [string, string][] {
  return strings(gguf, "tokenizer.ggml.merges").map((merge, rank) => {
    // Byte-level tokens have no space, so the first one after the first character separates the two.
    const space = merge.indexOf(" ", 1);
    if (space < 1) throw broken(gguf, `the merge ${rank} ('${merge}') is not two tokens`);
    return [merge.slice(0, space), merge.slice(space + 1)];
  });
}

function strings(gguf: Gguf, key: string): readonly string[] {
  const value = gguf.metadata.get(key);
  if (Array.isArray(value) && value.every((item) => typeof item === "string")) return value as string[];
  throw broken(gguf, `${key} is ${value === undefined ? "missing" : "not a list of strings"}`);
}

function optionalId(gguf: Gguf, which: string, tokens: readonly Token[]): number | null {
  const id = gguf.metadata.get(`tokenizer.ggml.${which}_token_id`);
  if (id === undefined) return null;
  if (typeof id === "number" && id >= 0 && id < tokens.length) return id;
  throw broken(gguf, `tokenizer.ggml.${which}_token_id is ${id}; there are ${tokens.length} tokens`);
}

function chatTemplate(gguf: Gguf): { chat_template?: string } {
  const template = gguf.metadata.get("tokenizer.chat_template");
  return typeof template === "string" ? { chat_template: template } : {};
}

/** Control tokens that end a turn in the templates of the families, in addition to the file's own. */
const endNames: ReadonlySet<string> = new Set([
  "<|im_end|>",
  "<|endoftext|>",
  "<|eot_id|>",
  "<|end_of_text|>",
]);

function endIds(gguf: Gguf, tokens: readonly Token[]): number[] {
  const ids = new Set<number>();
  for (const which of ["eos", "eot"]) {
    const id = optionalId(gguf, which, tokens);
    if (id !== null) ids.add(id);
  }
  for (const [id, { text, kind }] of tokens.entries())
    if (kind === "control" && endNames.has(text)) ids.add(id);
  if (ids.size === 0) throw broken(gguf, "no token ends an answer: tokenizer.ggml.eos_token_id is missing");
  return [...ids];
}

function tokenizerJson(
  tokens: readonly Token[],
  merges: readonly [string, string][],
  preTokenizer: PreTokenizer,
  bos: number | null,
): object {
  const vocab: Record<string, number> = Object.create(null);
  const addedTokens = [];
  for (const [id, { text, kind }] of tokens.entries()) {
    if (kind === "normal") vocab[text] = id;
    else if (kind !== "unused")
      addedTokens.push({
        id,
        content: text,
        single_word: false,
        lstrip: false,
        rstrip: false,
        normalized: false,
        special: kind === "control",
      });
  }
  return {
    version: "1.0",
    truncation: null,
    padding: null,
    added_tokens: addedTokens,
    normalizer: preTokenizer.normalizer,
    pre_tokenizer: { type: "Sequence", pretokenizers: preTokenizer.steps },
    post_processor: bos === null ? byteLevel(false) : startWith(tokens[bos]!.text, bos),
    decoder: byteLevel(false),
    model: {
      type: "BPE",
      dropout: null,
      unk_token: null,
      continuing_subword_prefix: "",
      end_of_word_suffix: "",
      fuse_unk: false,
      byte_fallback: false,
      ignore_merges: preTokenizer.ignoreMerges,
      vocab,
      merges,
    },
  };
}

function startWith(text: string, id: number): object {
  const special = { SpecialToken: { id: text, type_id: 0 } };
  const first = { Sequence: { id: "A", type_id: 0 } };
  const second = { Sequence: { id: "B", type_id: 1 } };
  return {
    type: "TemplateProcessing",
    single: [special, first],
    pair: [special, first, second],
    special_tokens: { [text]: { id: text, ids: [id], tokens: [text] } },
  };
}

function broken(gguf: Gguf, why: string): Error {
  return pocketError("BAD_GGUF", basename(gguf.file), why);
}
