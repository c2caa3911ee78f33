// Tokenizer for byte-level BPE models. @huggingface/tokenizers does the merges and is built *without* added tokens;
// added (control) tokens are found here, only in text that the caller declares as template text. So a user's text
// that spells `<|im_end|>` never becomes a control token.
import { Tokenizer as Bpe } from "@huggingface/tokenizers";
import { pocketError } from "../errors.ts";
import { alphabetBytes } from "./byte-alphabet.ts";

export interface AddedToken {
  readonly id: number;
  readonly content: string;
  /** Turn markers and the like: never part of an answer's text. */
  readonly special: boolean;
}

/** Plain text, or the id of an added token. */
export type Section = string | number;

/** The fields of tokenizer.json that are used. */
interface TokenizerFile {
  readonly model?: { readonly type?: string; readonly vocab?: Readonly<Record<string, number>> };
  readonly decoder?: { readonly type?: string; readonly decoders?: readonly { readonly type?: string }[] };
  readonly added_tokens?: readonly (AddedToken & { readonly lstrip?: boolean; readonly rstrip?: boolean })[];
}

export class Tokenizer {
  readonly addedTokens: readonly AddedToken[];
  /** Ids are in [0, size). Some may be unused. */
  readonly size: number;
  /** The token that every text starts with; undefined if the model has none. */
  readonly bos: number | undefined;
  readonly #bpe: Bpe;
  readonly #special: ReadonlySet<number>;
  readonly #idOfAdded: ReadonlyMap<string, number>;
  readonly #addedPattern: RegExp | undefined;
  readonly #bytes: readonly (Uint8Array | undefined)[];

  /** Parsed tokenizer.json and tokenizer_config.json. Throws UNSUPPORTED_MODEL if it is not byte-level BPE. */
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
   * User text: spelled-out control tokens stay plain text. A byte without a vocabulary entry is dropped (some small
   * vocabularies lack a few control characters).
   */
  encodeContent(text: string): Int32Array {
    if (text === "") return new Int32Array(0);
    const ids: readonly (number | undefined)[] = this.#bpe.encode(text, { add_special_tokens: false }).ids;
    // For a byte without an entry the library returns the id of the unknown token, which is a control token.
    return Int32Array.from(ids.filter((id) => id !== undefined && !this.#special.has(id)) as number[]);
  }

  /** Template text or trusted input: added tokens in it become their ids. */
  encodeTemplate(text: string): Int32Array {
    const ids: number[] = [];
    for (const section of this.sections(text)) {
      if (typeof section === "number") ids.push(section);
      else for (const id of this.encodeContent(section)) ids.push(id);
    }
    return Int32Array.from(ids);
  }

  /** `text` cut at its added tokens, without empty parts. Added tokens with lstrip or rstrip take adjacent spaces. */
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

  /** The exact bytes of an id; none for an unused id. Read-only. */
  bytesOf(id: number): Uint8Array {
    return this.#bytes[id] ?? noBytes;
  }

  /** Bytes that are not UTF-8 become U+FFFD; added tokens become their text. */
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

/** Longest first, so that a token is found whole even if a shorter one is its prefix. */
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

/** A token in tokenizer_config.json is a string or an object with `content`. */
function tokenText(token: unknown): string {
  if (typeof token === "string") return token;
  return String((token as { readonly content?: unknown } | null | undefined)?.content ?? "");
}
