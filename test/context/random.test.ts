// Random appends, compactions and expansions, compared with a model that only has lists of messages: every
// original can be recalled word for word and is stored once, and the token counts add up.
import fc from "fast-check";
import { expect, test } from "vitest";
import type { Message } from "../../src/chat/chat.ts";
import { messagesOf } from "../../src/context/block.ts";
import { catalogMessage, catalogOf } from "../../src/context/catalog.ts";
import { compactBlock } from "../../src/context/compact.ts";
import type { Conversation } from "../../src/context/conversation.ts";
import { expandBlock } from "../../src/context/expand.ts";
import { checkStore } from "../../src/context/integrity-check.ts";
import { Store } from "../../src/context/store.ts";
import type { Tag } from "../../src/context/tag.ts";
import { conversationOf, count, exchangeOf, instructions, summarising } from "../support/fake-chat.ts";

type Action =
  | { readonly type: "request" }
  | { readonly type: "exchange"; readonly size: number; readonly calls: number }
  | { readonly type: "compact"; readonly from: number; readonly blocks: number; readonly summary: number }
  | { readonly type: "expand"; readonly tag: number };

const natural = fc.nat({ max: 1000 });
const action: fc.Arbitrary<Action> = fc.oneof(
  { weight: 1, arbitrary: fc.record({ type: fc.constant("request" as const) }) },
  {
    weight: 5,
    arbitrary: fc.record({
      type: fc.constant("exchange" as const),
      size: fc.nat({ max: 400 }),
      calls: fc.nat({ max: 3 }),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      type: fc.constant("compact" as const),
      from: natural,
      blocks: fc.integer({ min: 1, max: 6 }),
      summary: fc.integer({ min: 1, max: 60 }),
    }),
  },
  { weight: 2, arbitrary: fc.record({ type: fc.constant("expand" as const), tag: natural }) },
);

/**
 * The reference model: the prompt as lists of messages by block, and the messages that each tag must recall.
 */
class Lists {
  blocks: { id: string; messages: readonly Message[]; isMemory: boolean }[] = [];
  originals: Message[] = [];
  readonly tags = new Map<string, readonly Message[]>();
  lastRequest = "";
  lastExchange = "";

  get sent(): Message[] {
    return [...instructions, ...this.blocks.flatMap(({ messages }) => messages)];
  }

  append(id: string, messages: readonly Message[]): void {
    this.blocks.push({ id, messages, isMemory: false });
  }
}

async function act(action: Action, turn: number, conversation: Conversation, lists: Lists): Promise<void> {
  if (action.type === "request") {
    const message: Message = { role: "user", content: `Question ${turn}?` };
    lists.lastRequest = conversation.request(message).id;
    lists.append(lists.lastRequest, [message]);
    lists.originals.push(message);
  } else if (action.type === "exchange") {
    const messages = exchangeOf(`turn ${turn}`, action.size, action.calls);
    lists.lastExchange = conversation.exchange(messages).id;
    lists.append(lists.lastExchange, messages);
    lists.originals.push(...messages);
  } else if (action.type === "compact") await compact(action, conversation, lists);
  else expand(action.tag, conversation, lists);
}

async function compact(
  { from, blocks, summary }: Extract<Action, { type: "compact" }>,
  conversation: Conversation,
  lists: Lists,
): Promise<void> {
  if (lists.blocks.length === 0) return;
  const start = from % lists.blocks.length;
  const selected = lists.blocks.slice(start, start + blocks);
  const json = JSON.stringify({ start: selected[0]!.id, end: selected.at(-1)!.id });
  const compressor = summarising("s".repeat(summary));
  const { done, text } = await compactBlock(json, { conversation, compressor, limit: 1e9 });
  if (!done) {
    expect(text).toMatch(/^Nothing was compacted: .*(protected|nothing would be gained)/);
    return;
  }
  const seen = new Set<Message>();
  const given = selected.flatMap(({ messages, isMemory }) => (isMemory ? [] : messages));
  lists.tags.set(
    done.record.tag,
    given.filter((message) => !seen.has(message) && seen.add(message)),
  );
  lists.blocks.splice(start, selected.length, {
    id: done.memory.id,
    messages: [done.memory.message],
    isMemory: true,
  });
}

function expand(index: number, conversation: Conversation, lists: Lists): void {
  const tags = [...lists.tags.keys()];
  if (tags.length === 0 || lists.lastExchange === "") return;
  const tag = tags[index % tags.length]!;
  const { done } = expandBlock(JSON.stringify({ tag }), { conversation, limit: 1e9, pending: 0 });
  expect(done === undefined).toBe(lists.tags.get(tag)!.length === 0);
  for (const copy of done?.apply() ?? []) lists.append(copy.id, messagesOf(copy));
}

function check(conversation: Conversation, lists: Lists): void {
  const { history, archive } = conversation;
  expect(history.messages()).toEqual(lists.sent);
  expect(history.tokens).toBe(lists.sent.reduce((sum, message) => sum + count(message), 0));

  // Every original is in the history or under exactly one tag, and each tag recalls what it archived.
  const inHistory = history.blocks.flatMap((block) =>
    block.kind === "memory" || block.origin ? [] : block.originals,
  );
  const archived = archive.records.flatMap(({ parts }) =>
    parts.flatMap((part) => (part.kind === "owned" ? part.originals : [])),
  );
  const all = [...inHistory, ...archived].sort((left, right) => left.id - right.id);
  expect(all.map(({ id }) => id)).toEqual(lists.originals.map((_, index) => index + 1));
  expect(all.map(({ message }) => message)).toEqual(lists.originals);
  for (const [tag, messages] of lists.tags) {
    const { blocks } = archive.recall(tag as Tag)!;
    expect(blocks.flatMap(({ originals }) => originals.map(({ message }) => message))).toEqual(messages);
  }

  // The catalog is in order, has correct token counts and no protected block, and never becomes part of the
  // history.
  const entries = catalogOf(history);
  const indices = entries.map(({ id }) => history.indexOf(id));
  expect(indices).toEqual(indices.toSorted((left, right) => left - right));
  for (const { id, tokens } of entries) {
    expect([lists.lastRequest, lists.lastExchange]).not.toContain(id);
    const { messages } = lists.blocks.find((block) => block.id === id)!;
    expect(tokens).toBe(messages.reduce((sum, message) => sum + count(message), 0));
  }
  catalogMessage(history, { used: 1, limit: 2 });
  expect(history.messages()).toEqual(lists.sent);
}

test("random appends, compactions and expansions lose nothing, and the token counts add up", async () => {
  const seen = { compactions: 0, reused: 0, refs: 0 };
  await fc.assert(
    fc.asyncProperty(fc.array(action, { minLength: 10, maxLength: 60 }), async (actions) => {
      const conversation = conversationOf();
      const lists = new Lists();
      for (const [turn, next] of actions.entries()) await act(next, turn, conversation, lists);
      check(conversation, lists);
      const parts = conversation.archive.records.flatMap((record) => record.parts);
      seen.compactions += conversation.archive.records.length;
      seen.reused += parts.filter(({ kind }) => kind === "reused").length;
      seen.refs += parts.filter(({ kind }) => kind === "ref").length;
    }),
    { numRuns: 150 },
  );
  // The test is only meaningful if these cases occurred.
  expect(Math.min(seen.compactions, seen.reused, seen.refs)).toBeGreaterThan(4);
});

test("after each change the run on disk equals the one in memory and has no damage", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(action, { minLength: 5, maxLength: 30 }), async (actions) => {
      const store = new Store(":memory:");
      try {
        const { conversation } = store.create({ id: "run", title: "", settings: null, instructions }, count);
        const lists = new Lists();
        for (const [turn, next] of actions.entries()) {
          await act(next, turn, conversation, lists);
          const resumed = store.resume("run", count).conversation;
          expect(resumed.history.blocks).toEqual(conversation.history.blocks);
          expect(resumed.archive.records).toEqual(conversation.archive.records);
        }
        check(store.resume("run", count).conversation, lists);
        expect(checkStore(store.database)).toEqual([]);
      } finally {
        store.close();
      }
    }),
    { numRuns: 25 },
  );
});
