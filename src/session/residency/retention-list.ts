// Everything that is retained in the pool, in one list ordered by eviction: versions before an edit first, then
// victims, then idle sessions, then cached prefixes; within a kind the oldest first. Ordering only: releasing cells and
// updating the prefix index is done in residents.ts.
import type { Session, Version } from "./session.ts";

export type Retained =
  /** `version`: the session before its last edit, for an undo. */
  | { readonly kind: "previous"; readonly session: Session; readonly version: Version }
  /** `version`: cells that an edit of the session removed, for an expand. */
  | { readonly kind: "victim"; readonly session: Session; readonly version: Version }
  /** `version`: the session itself. A busy session is in the list but is never evicted. */
  | { readonly kind: "session"; readonly session: Session; readonly version: Version }
  /** `version`: the system prompt of evicted sessions. */
  | { readonly kind: "prefix"; readonly tenant: string | undefined; readonly version: Version };

type Kind = Retained["kind"];
export type Entry<K extends Kind> = Extract<Retained, { readonly kind: K }>;

const evictionOrder = ["previous", "victim", "session", "prefix"] as const;

export class RetentionList {
  /** Per kind, oldest first. */
  readonly #entries = new Map<Kind, Map<Version, Retained>>(evictionOrder.map((kind) => [kind, new Map()]));

  constructor(private readonly limits: Readonly<Record<Kind, number>>) {}

  /** The entry becomes the youngest of its kind. */
  add(entry: Retained): void {
    this.delete(entry);
    this.replace(entry);
  }

  /** Like `add`, but an entry that exists keeps its age. */
  replace(entry: Retained): void {
    this.#entries.get(entry.kind)!.set(keyOf(entry), entry);
  }

  delete(entry: Retained): void {
    this.#entries.get(entry.kind)!.delete(keyOf(entry));
  }

  /** Oldest first. A copy: entries may be deleted while it is iterated. */
  of<K extends Kind>(kind: K): Entry<K>[] {
    return Array.from(this.#entries.get(kind)!.values()) as Entry<K>[];
  }

  limitOf(kind: Kind): number {
    return this.limits[kind];
  }

  /** The oldest entries beyond the limit of the kind. */
  excess<K extends Kind>(kind: K): Entry<K>[] {
    return this.of(kind).slice(0, Math.max(0, this.#entries.get(kind)!.size - this.limits[kind]));
  }

  /** The next entry to evict; busy sessions and the session `spared` are skipped. */
  next(spared?: Session): Retained | undefined {
    for (const kind of evictionOrder) {
      for (const entry of this.#entries.get(kind)!.values()) if (isEvictable(entry, spared)) return entry;
    }
    return undefined;
  }
}

/** A session has one previous version at most, which an undo exchanges. */
function keyOf(entry: Retained): Version {
  return entry.kind === "previous" ? entry.session : entry.version;
}

function isEvictable(entry: Retained, spared: Session | undefined): boolean {
  return entry.kind !== "session" || (!entry.session.busy && entry.session !== spared);
}
