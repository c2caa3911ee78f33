// The order in which retained cells are evicted, and the limits per kind.
import { describe, expect, it } from "vitest";
import { type Retained, RetentionList } from "../../src/session/residency/retention-list.ts";
import { Session, type Version } from "../../src/session/residency/session.ts";
import { spanOf } from "../../src/text/span.ts";
import { FakeEngine, hashing } from "../support/fake-engine.ts";

const engine = new FakeEngine(hashing(256));
const limits = { previous: 2, victim: 2, session: Number.POSITIVE_INFINITY, prefix: 1 };
const session = (id: string) => new Session({ id, named: true, tenant: undefined }, engine.create());
const version = (): Version => ({ sequence: engine.create(), spans: [], relocated: [], exactLength: 0 });
const sessionEntry = (one: Session): Retained => ({ kind: "session", session: one, version: one });

function evictAll(list: RetentionList, spared?: Session): Retained[] {
  const evicted: Retained[] = [];
  for (let next = list.next(spared); next; next = list.next(spared)) {
    evicted.push(next);
    list.delete(next);
  }
  return evicted;
}

describe("the retention list", () => {
  it("evicts previous versions, victims, idle sessions and prefixes in this order, each oldest first", () => {
    const list = new RetentionList(limits);
    const [a, b] = [session("a"), session("b")];
    const prefix: Retained = { kind: "prefix", tenant: undefined, version: version() };
    const victims = [a, b].map((one): Retained => ({ kind: "victim", session: one, version: version() }));
    const previous = [b, a].map((one): Retained => ({ kind: "previous", session: one, version: version() }));
    const sessions = [a, b].map(sessionEntry);
    for (const entry of [prefix, ...sessions, ...victims, ...previous]) list.add(entry);
    expect(evictAll(list)).toEqual([...previous, ...victims, ...sessions, prefix]);
  });

  it("evicts the least recently used session first and skips busy and spared ones", () => {
    const list = new RetentionList(limits);
    const [a, b, c, d] = [session("a"), session("b"), session("c"), session("d")];
    for (const one of [a, b, c, d, a]) list.add(sessionEntry(one));
    const plan = {
      reused: [],
      splices: [],
      kept: 0,
      relocated: 0,
      computed: 1,
      cut: 0,
      stale: 0,
      dropped: 0,
    };
    const wanted = [spanOf("user", Int32Array.of(1))];
    c.begin(wanted, { ...plan, exactLength: 1, relocatedRanges: [], reason: "" }, () => undefined);
    expect(evictAll(list, d)).toEqual([b, a].map(sessionEntry));
  });

  it("names the oldest entries beyond the limit of a kind", () => {
    const list = new RetentionList(limits);
    const one = session("a");
    const victims = [1, 2, 3].map((): Retained => ({ kind: "victim", session: one, version: version() }));
    for (const entry of victims) list.add(entry);
    expect(list.excess("victim")).toEqual(victims.slice(0, 1));
    expect(list.excess("session")).toEqual([]);
  });

  it("keeps the age of a previous version that an undo exchanges", () => {
    const list = new RetentionList(limits);
    const [a, b] = [session("a"), session("b")];
    for (const one of [a, b]) list.add({ kind: "previous", session: one, version: version() });
    const exchanged: Retained = { kind: "previous", session: a, version: version() };
    list.replace(exchanged);
    expect(list.next()).toBe(exchanged);
    expect(list.of("previous")).toHaveLength(2);
  });
});
