// What compactions took out of the history, by tag. A record has one part per block of the selection: `owned`
// messages, `ref` to the tag of a selected memory, or `reused`, which points to messages that another record
// owns. So each original is stored once, however often it is expanded and compacted again. In memory;
// store.ts keeps it on disk.
import { PocketError } from "../errors.ts";
import type { Block, BlockId, Exchange, Memory, Original, Request } from "./block.ts";
import type { Tag } from "./tag.ts";

/** One block of a selection. `block`: its id in the history. */
export type Part =
  | {
      readonly kind: "owned";
      readonly block: BlockId;
      readonly of: "request" | "exchange";
      readonly originals: readonly Original[];
    }
  | { readonly kind: "ref"; readonly block: BlockId; readonly tag: Tag }
  /** A copy. Its messages are those of the block `source`, which the record of `tag` owns. */
  | { readonly kind: "reused"; readonly block: BlockId; readonly tag: Tag; readonly source: BlockId };

/** One compaction. */
export interface ArchiveRecord {
  readonly tag: Tag;
  /** In the order of the selection. */
  readonly parts: readonly Part[];
  /** Id of the memory that replaced the parts. */
  readonly memory: BlockId;
  /** As the compressor wrote it. */
  readonly summary: string;
}

/** An archived block that can be appended again. `tag`: of the record that owns `source`. */
export interface Recalled {
  readonly of: "request" | "exchange";
  readonly tag: Tag;
  readonly source: BlockId;
  readonly originals: readonly Original[];
}

type Owned = Extract<Part, { kind: "owned" }>;

/** The archived ranges of one conversation. Append only. */
export class Archive {
  readonly #records = new Map<Tag, ArchiveRecord>();
  readonly #owned = new Map<BlockId, { readonly tag: Tag; readonly part: Owned }>();
  /** The tag of each block that left the history. */
  readonly #tags = new Map<BlockId, Tag>();

  /** In the order in which they were added. */
  get records(): readonly ArchiveRecord[] {
    return [...this.#records.values()];
  }

  get tags(): readonly Tag[] {
    return [...this.#records.keys()];
  }

  get(tag: Tag): ArchiveRecord | undefined {
    return this.#records.get(tag);
  }

  /** The tag under which a block was archived. */
  tagOfBlock(block: BlockId): Tag | undefined {
    return this.#tags.get(block);
  }

  /** @deprecated Use tagOfBlock. */
  placeOf(block: BlockId): Tag | undefined {
    return this.tagOfBlock(block);
  }

  /** Adds the record. Throws BAD_ARGUMENT and changes nothing if it contradicts the other records. */
  file(record: ArchiveRecord): void {
    const conflict = this.#conflict(record);
    if (conflict) throw new PocketError("BAD_ARGUMENT", `${record.tag} cannot be archived: ${conflict}.`);
    this.#records.set(record.tag, record);
    for (const part of record.parts) {
      this.#tags.set(part.block, record.tag);
      if (part.kind === "owned") this.#owned.set(part.block, { tag: record.tag, part });
    }
  }

  /**
   * The blocks of the range in order, each once, reused ones from the record that owns them; and the tags
   * that the range refers to, which are not followed. Undefined for an unknown tag.
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

  #conflict({ tag, parts }: ArchiveRecord): string | undefined {
    if (this.#records.has(tag)) return "the tag is taken";
    if (parts.length === 0) return "it has no parts";
    for (const part of parts) {
      if (this.#tags.has(part.block)) return `${part.block} is under ${this.#tags.get(part.block)} already`;
      if (part.kind === "ref" && !this.#records.has(part.tag))
        return `it refers to ${part.tag}, which is not there`;
      if (part.kind === "reused" && this.#owned.get(part.source)?.tag !== part.tag) {
        return `${part.block} is said to be ${part.source} of ${part.tag}, which does not own it`;
      }
    }
    return undefined;
  }
}

/** The parts of a record for a selection. */
export function partsOf(blocks: readonly Block[]): Part[] {
  return blocks.map(partOf);
}

/** Tags of the selected memories, in order, each once. */
export function refsOf(parts: readonly Part[]): Tag[] {
  return [...new Set(parts.flatMap((part) => (part.kind === "ref" ? [part.tag] : [])))];
}

function partOf(block: Request | Exchange | Memory): Part {
  if (block.kind === "memory") return { kind: "ref", block: block.id, tag: block.tag };
  const { id, kind, origin, originals } = block;
  if (origin) return { kind: "reused", block: id, tag: origin.tag, source: origin.block };
  return { kind: "owned", block: id, of: kind, originals };
}
