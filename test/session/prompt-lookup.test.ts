// Whole answers with prompt lookup on the tiny model: text, reason, logprobs, cache usage and sessions equal those
// without it, whatever ends or constrains the answer.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import type { ChatRequest, Message } from "../../src/chat/chat.ts";
import { ask, long, system, user } from "../support/fake-engine-chat.ts";
import { openTinyChat, type TinyChat } from "../support/tiny-chat.ts";

const messages = [system, user(long("a")), user(long("a"))];
/** A negative penalty makes the random model repeat itself. */
const fond = { frequencyPenalty: -0.6, maxTokens: 60, reuse: "prefix" as const };
const seeded = { ...fond, temperature: 0.6, topK: 20, seed: 4 };

let real: TinyChat;
let folder: string;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "pocket-lookup-"));
  real = await openTinyChat("session-lookup", { disk: { folder, bytes: 1 << 28 }, sessionsMax: 4 });
});
afterEach(() => {
  real.runner.check();
  for (const { id } of real.chat.list()) real.chat.delete(id);
});
afterAll(async () => {
  await real?.close();
  rmSync(folder, { recursive: true, force: true });
});

type Answered = Awaited<ReturnType<typeof ask>>;

/** What must be equal. Logprobs may differ by the order of sums; the reason contains the session's name. */
function essence({ answer, reason, promptTokens, completionTokens, cacheUsage, deltas }: Answered) {
  const { kept, relocated, computed, stale } = cacheUsage;
  const logprobs = deltas
    .flatMap((delta) => delta.logprobs ?? [])
    .map(({ token, logprob }) => [token, logprob.toFixed(2)]);
  return { answer, reason, promptTokens, completionTokens, kept, relocated, computed, stale, logprobs };
}

async function bothWays(request: ChatRequest, next: readonly Message[] = []) {
  const turns = async (lookup: boolean) => {
    const session = lookup ? "on" : "off";
    const first = await ask(real.chat, { ...request, session, lookup });
    const answer: Message = { role: "assistant", content: first.answer };
    const second = await ask(real.chat, {
      ...request,
      messages: [...request.messages, answer, user("And now?"), ...next],
      session,
      lookup,
    });
    const { tokens, stale, shifts } = real.chat.inspect(session);
    return { first, second, cells: { tokens, stale, shifts } };
  };
  const off = await turns(false);
  // So that the other request finds nothing resident.
  real.chat.delete("off");
  const on = await turns(true);
  expect(essence(on.first)).toEqual(essence(off.first));
  expect(essence(on.second)).toEqual(essence(off.second));
  expect(on.cells).toEqual(off.cells);
  expect(off.first.draftTokens).toEqual({ accepted: 0, rejected: 0 });
  return on;
}

describe("an answer with prompt lookup equals the one without", () => {
  it("for greedy and seeded sampling", async () => {
    let accepted = 0;
    for (const options of [fond, seeded, { ...seeded, seed: 5 }, { ...fond, repetitionPenalty: 0.9 }]) {
      const { first } = await bothWays({ messages, ...options });
      accepted += first.draftTokens!.accepted;
      expect(first.draftTokens!.accepted).toBeLessThan(first.completionTokens);
    }
    expect(accepted).toBeGreaterThan(0);
  });

  it("with log-probabilities and alternatives", async () => {
    const { first } = await bothWays({ messages, ...seeded, topLogprobs: 3 });
    const logprobs = first.deltas.flatMap((delta) => delta.logprobs ?? []);
    expect(logprobs.every(({ logprob, top }) => Number.isFinite(logprob) && top.length === 3)).toBe(true);
  });

  it("with stop strings that end it in the middle of draft tokens", async () => {
    const { answer } = await ask(real.chat, { messages, ...fond });
    real.chat.delete(real.chat.list()[0]!.id);
    for (const index of [12, 25, 40]) {
      const stop = [answer.slice(index, index + 3)];
      const { first } = await bothWays({ messages, ...fond, stop });
      expect(first.reason).toBe("stop");
      expect(first.answer.length).toBeLessThanOrEqual(index);
    }
  });

  it("constrained by a grammar or without calls, where no draft tokens are used", async () => {
    const schema = {
      type: "object",
      properties: { a: { type: "array", items: { enum: [1, 2] } } },
      required: ["a"],
    };
    const format = { type: "json_schema", schema, strict: true } as const;
    const { first } = await bothWays({ messages, ...seeded, format });
    expect(first.draftTokens).toEqual({ accepted: 0, rejected: 0 });
    const tools = [{ name: "look", parameters: { type: "object" } }];
    const words = await bothWays({ messages, ...seeded, tools, toolChoice: "none" });
    expect(words.first.draftTokens).toEqual({ accepted: 0, rejected: 0 });
  });

  it("and its session is restored from disk with the same cells", async () => {
    const request = { messages, ...fond, lookup: true };
    const first = await ask(real.chat, { ...request, session: "d" });
    for (const other of ["x", "y", "z", "w"]) {
      await ask(real.chat, { messages: [user(other)], session: other, maxTokens: 1 });
    }
    expect(real.chat.list().map(({ id }) => id)).not.toContain("d");
    const answer: Message = { role: "assistant", content: first.answer };
    const second = await ask(real.chat, {
      ...request,
      session: "d",
      messages: [...messages, answer, user("On.")],
    });
    expect(second.cacheUsage.reason).toContain("came from disk");
    expect(second.cacheUsage.kept).toBeGreaterThanOrEqual(first.promptTokens + first.completionTokens - 1);
  });
});
