// What compactions took out of the history, by tag: messages *owned* word for word, *refs* to the tags of
// selected memories, and *reused* pointers where the selection held copies of what is archived already. So each
// original is here once, however often it was expanded and compacted again. In memory; store.ts keeps it on
// disk.
import { PocketError } from "../errors.ts";
import type { Block, BlockId, Exchange, Memory, Original, Request } from "./block.ts";
import type { Tag } from "./tag.ts";

/** One block of the selection, as it is kept. `block` is the id it had there. */
export type Part =
  | {
      readonly kind: "owned";
      readonly block: BlockId;
      readonly of: "request" | "exchange";
      readonly originals: readonly Original[];
    }
  | { readonly kind: "ref"; readonly block: BlockId; readonly tag: Tag }
  /** A copy: its messages are those of `source`, which the record of `tag` owns. */
  | { readonly kind: "reused"; readonly block: BlockId; readonly tag: Tag; readonly source: BlockId };

/** One compaction. */
export interface ArchiveRecord {
  readonly tag: Tag;
  /** In the order of the selection. */
  readonly parts: readonly Part[];
  /** Id of the memory that took the place of the parts. */
  readonly memory: BlockId;
  /** As the compressor wrote it. */
  readonly summary: string;
}

/** A block to be appended again, and where its originals are. */
export interface Recalled {
  readonly of: "request" | "exchange";
  readonly tag: Tag;
  readonly source: BlockId;
  readonly originals: readonly Original[];
}

type Owned = Extract<Part, { kind: "owned" }>;

export class Archive {
  readonly #records = new Map<Tag, ArchiveRecord>();
  readonly #owned = new Map<BlockId, { readonly tag: Tag; readonly part: Owned }>();
  /** Which tag a block that left the history lies under. */
  readonly #places = new Map<BlockId, Tag>();

  /** In the order of filing. */
  get records(): readonly ArchiveRecord[] {
    return [...this.#records.values()];
  }

  get tags(): readonly Tag[] {
    return [...this.#records.keys()];
  }

  get(tag: Tag): ArchiveRecord | undefined {
    return this.#records.get(tag);
  }

  /** The tag under which a block lies that was in the history once. */
  tagOfBlock(block: BlockId): Tag | undefined {
    return this.#places.get(block);
  }

  /** Keeps the record. Throws BAD_ARGUMENT, having changed nothing, where it contradicts what is kept. */
  file(record: ArchiveRecord): void {
    const complaint = this.#complaint(record);
    if (complaint) throw new PocketError("BAD_ARGUMENT", `${record.tag} cannot be archived: ${complaint}.`);
    this.#records.set(record.tag, record);
    for (const part of record.parts) {
      this.#places.set(part.block, record.tag);
      if (part.kind === "owned") this.#owned.set(part.block, { tag: record.tag, part });
    }
  }

  /**
   * The blocks of the range in its order, reused ones from where they are owned and each once, and the tags it
   * refers to, which are not followed. Undefined for a tag that does not exist.
   */
  recall(tag: Tag): { readonly blocks: readonly Recalled[]; readonly refs: readonly Tag[] } | undefined {
    const record = this.#records.get(tag);
    if (!record) return undefined;
    const sources = record.parts.flatMap((part) =>
      part.kind === "ref" ? [] : [part.kind === "owned" ? part.block : part.source],
    );
    const blocks = [...new Set(sources)].map((source): Recalled => {
      const { tag, part } = this.#owned.get(source)!;
      return { of: part.of, tag, source, originals: part.originals };
    });
    return { blocks, refs: refsOf(record.parts) };
  }

  #complaint({ tag, parts }: ArchiveRecord): string | undefined {
    if (this.#records.has(tag)) return "the tag is taken";
    if (parts.length === 0) return "it has no parts";
    for (const part of parts) {
      if (this.#places.has(part.block))
        return `${part.block} is under ${this.#places.get(part.block)} already`;
      if (part.kind === "ref" && !this.#records.has(part.tag))
        return `it refers to ${part.tag}, which is not there`;
      if (part.kind === "reused" && this.#owned.get(part.source)?.tag !== part.tag) {
        return `${part.block} is said to be ${part.source} of ${part.tag}, which does not own it`;
      }
    }
    return undefined;
  }
}

/** How the blocks of a selection are kept. */
export function partsOf(blocks: readonly Block[]): Part[] {
  return blocks.map(partOf);
}

/** Tags of the memories that were selected, in order, each once. */
export function refsOf(parts: readonly Part[]): Tag[] {
  return [...new Set(parts.flatMap((part) => (part.kind === "ref" ? [part.tag] : [])))];
}

function partOf(block: Request | Exchange | Memory): Part {
  if (block.kind === "memory") return { kind: "ref", block: block.id, tag: block.tag };
  const { id, kind, origin, originals } = block;
  if (origin) return { kind: "reused", block: id, tag: origin.tag, source: origin.block };
  return { kind: "owned", block: id, of: kind, originals };
}
