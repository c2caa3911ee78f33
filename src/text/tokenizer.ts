// Text to token ids and back, for byte-level BPE models. The merges are those of @huggingface/tokenizers, built
// once *without* added tokens; added (control) tokens are found here, and only where the caller says that the
// text may hold them. So text of a user can spell `<|im_end|>` and never becomes a control token. It does no
// file I/O and knows neither templates nor streams.
import { Tokenizer as Bpe } from "@huggingface/tokenizers";
import { pocketError } from "../errors.ts";
import { alphabetBytes } from "./byte-alphabet.ts";

export interface AddedToken {
  readonly id: number;
  readonly content: string;
  /** Never part of an answer's text: turn markers and the like. */
  readonly special: boolean;
}

/** A stretch of plain text, or the id of an added token. */
export type Section = string | number;

/** The parts of tokenizer.json that are read here. */
interface TokenizerFile {
  readonly model?: { readonly type?: string; readonly vocab?: Readonly<Record<string, number>> };
  readonly decoder?: { readonly type?: string; readonly decoders?: readonly { readonly type?: string }[] };
  readonly added_tokens?: readonly (AddedToken & { readonly lstrip?: boolean; readonly rstrip?: boolean })[];
}

export class Tokenizer {
  readonly addedTokens: readonly AddedToken[];
  /** Ids are in [0, size). Some may stand for nothing. */
  readonly size: number;
  /** Prefixed by `encode` with `addSpecial`; undefined where the model begins without one. */
  readonly bos: number | undefined;
  readonly #bpe: Bpe;
  readonly #special: ReadonlySet<number>;
  readonly #idOfAdded: ReadonlyMap<string, number>;
  readonly #addedPattern: RegExp | undefined;
  readonly #bytes: readonly (Uint8Array | undefined)[];

  /** Parsed tokenizer.json and tokenizer_config.json. Throws UNSUPPORTED_MODEL for what is not byte-level BPE. */
  constructor(tokenizerJson: unknown, tokenizerConfig: unknown) {
    const file = tokenizerJson as TokenizerFile;
    const config = tokenizerConfig as { readonly bos_token?: unknown; readonly add_bos_token?: unknown };
    const vocab = refuseUnlessByteLevel(file);
    this.addedTokens = (file.added_tokens ?? []).map(({ id, content, special }) => ({
      id,
      content,
      special,
    }));
    this.#bpe = new Bpe({ ...(tokenizerJson as object), added_tokens: [] }, tokenizerConfig as object);
    this.#idOfAdded = new Map(this.addedTokens.map(({ content, id }) => [content, id]));
    this.#special = new Set(this.addedTokens.filter(({ special }) => special).map(({ id }) => id));
    this.#addedPattern = addedPattern(file.added_tokens ?? []);
    this.#bytes = byteTable(vocab, this.addedTokens);
    this.size = this.#bytes.length;
    this.bos = config.add_bos_token === true ? this.#idOfAdded.get(tokenText(config.bos_token)) : undefined;
  }

  /**
   * User text: spelled-out control tokens stay plain text. A byte for which the vocabulary has no entry is left
   * out (some small vocabularies lack a few control characters).
   */
  encodeContent(text: string): Int32Array {
    if (text === "") return new Int32Array(0);
    const ids: readonly (number | undefined)[] = this.#bpe.encode(text, { add_special_tokens: false }).ids;
    // Where the file names an unknown token, the library gives its id, which is a control token.
    return Int32Array.from(ids.filter((id) => id !== undefined && !this.#special.has(id)) as number[]);
  }

  /** Text of our own or of an operator: added tokens in it become their ids. */
  encodeTemplate(text: string): Int32Array {
    const ids: number[] = [];
    for (const section of this.sections(text)) {
      if (typeof section === "number") ids.push(section);
      else for (const id of this.encodeContent(section)) ids.push(id);
    }
    return Int32Array.from(ids);
  }

  /** `text` cut at its added tokens; no empty stretches. An added token swallows spaces where it is declared so. */
  sections(text: string): Section[] {
    if (!this.#addedPattern) return text === "" ? [] : [text];
    const found: Section[] = [];
    let at = 0;
    for (const match of text.matchAll(this.#addedPattern)) {
      if (match.index > at) found.push(text.slice(at, match.index));
      const id = this.#idOfAdded.get(match[0]) ?? this.#idOfAdded.get(match[0].trim());
      found.push(id!);
      at = match.index + match[0].length;
    }
    if (at < text.length) found.push(text.slice(at));
    return found;
  }

  idOf(added: string): number | undefined {
    return this.#idOfAdded.get(added);
  }

  /** The exact bytes an id stands for; none for an id that stands for nothing. Not to be changed. */
  bytesOf(id: number): Uint8Array {
    return this.#bytes[id] ?? noBytes;
  }

  /** Bytes that are not UTF-8 come out as U+FFFD; added tokens as their text. */
  decode(ids: Iterable<number>): string {
    const parts = Array.from(ids, (id) => this.bytesOf(id));
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(Buffer.concat(parts));
  }
}

const noBytes = new Uint8Array(0);

function refuseUnlessByteLevel(file: TokenizerFile): Readonly<Record<string, number>> {
  const decoders = file.decoder?.decoders ?? (file.decoder ? [file.decoder] : []);
  const { type, vocab } = file.model ?? {};
  if (type === "BPE" && vocab && decoders.some((decoder) => decoder.type === "ByteLevel")) return vocab;
  throw pocketError(
    "UNSUPPORTED_MODEL",
    `The tokenizer is ${type ?? "of no type"} with ${decoders.map((decoder) => decoder.type).join(", ") || "no"} decoder; only byte-level BPE is served.`,
  );
}

/** Longest first, so that a token that begins like a shorter one is found whole. */
function addedPattern(tokens: NonNullable<TokenizerFile["added_tokens"]>): RegExp | undefined {
  if (tokens.length === 0) return undefined;
  const alternatives = [...tokens]
    .sort((a, b) => b.content.length - a.content.length)
    .map(({ content, lstrip, rstrip }) => {
      const literal = content.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&");
      return `${lstrip ? "\\s*" : ""}${literal}${rstrip ? "\\s*" : ""}`;
    });
  return new RegExp(alternatives.join("|"), "gu");
}

function byteTable(vocab: Readonly<Record<string, number>>, added: readonly AddedToken[]): Uint8Array[] {
  const encoder = new TextEncoder();
  const table: Uint8Array[] = [];
  for (const [entry, id] of Object.entries(vocab)) {
    table[id] = alphabetBytes(entry) ?? encoder.encode(entry);
  }
  for (const { id, content } of added) table[id] = encoder.encode(content);
  return table;
}

/** tokenizer_config.json writes a token as its text or as an object with it. */
function tokenText(token: unknown): string {
  if (typeof token === "string") return token;
  return String((token as { readonly content?: unknown } | null | undefined)?.content ?? "");
}
