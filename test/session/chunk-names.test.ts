// Counts the chunks that are hashed for a request before its job begins.
import { describe, expect, it } from "vitest";
import { greedy } from "../../src/engine/job.ts";
import type { ChunkHash } from "../../src/session/residency/prefix-index.ts";
import { Sessions } from "../../src/session/residency/sessions.ts";
import { type Span, spanOf, tokensOf } from "../../src/text/span.ts";
import { FakeEngine, hashing } from "../support/fake-engine.ts";

function rig() {
  let hashed = 0;
  const hash: ChunkHash = (previous, part) => {
    hashed++;
    return `${previous.length > 40 ? previous.slice(-40) : previous} ${part.join(",")}`;
  };
  const engine = new FakeEngine(hashing(256));
  const sessions = new Sessions(engine, { max: 8, undoMax: 4, hash });
  /** Serves one prompt; returns the chunks hashed before its job began (`toBegin`) and in total. */
  const serve = async (wanted: readonly Span[], name?: string) => {
    const before = hashed;
    const request = { wanted, tokens: tokensOf(wanted), name, reuse: "suffix", repair: "none" } as const;
    const lease = await sessions.checkout({ ...request, abort: () => undefined });
    const toBegin = hashed - before;
    const generated: number[] = [];
    const job = { sampling: greedy, maxTokens: 1, stopTokens: new Set<number>(), top: 0 };
    for await (const { token } of lease.session.sequence.run({ ...job, splices: lease.plan.splices }))
      generated.push(token);
    sessions.checkin(lease, { generated, edited: "yes" });
    return { toBegin, inAll: hashed - before, plan: lease.plan };
  };
  return { serve };
}

const span = (seed: number, count: number) =>
  spanOf(
    "user",
    Int32Array.from({ length: count }, (_, index) => (seed * 31 + index * 7) % 256),
  );
const conversation = Array.from({ length: 10 }, (_, at) => span(at, 64));

describe("the chunks of a prompt", () => {
  it.each([undefined, "s"])("are hashed once per request (session %s)", async (name) => {
    const { serve } = rig();
    expect(await serve(conversation, name)).toMatchObject({ toBegin: 40, inAll: 40 });
    const longer = [...conversation, span(20, 30)];
    const { toBegin, inAll, plan } = await serve(longer, name);
    expect(plan.kept).toBe(640);
    // 41 whole chunks. A named session is not searched for, and the keys of its chunks are known.
    expect([toBegin, inAll]).toEqual(name === undefined ? [41, 41] : [1, 1]);
  });

  it("are not hashed again for the version before an edit", async () => {
    const { serve } = rig();
    await serve(conversation, "s");
    const edited = [conversation[0]!, span(30, 32), ...conversation.slice(5)];
    const { toBegin, plan } = await serve(edited, "s");
    expect(plan.relocated).toBe(319);
    expect(toBegin).toBe(2);
    const undone = await serve([...conversation, span(40, 30)], "s");
    expect(undone.plan.kept).toBe(640);
  });
});
