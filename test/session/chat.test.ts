import { describe, expect, it } from "vitest";
import { hashing } from "../support/fake-engine.ts";
import {
  ask,
  assistant,
  collect,
  expectCells,
  localChat,
  long,
  says,
  spell,
  summary,
  system,
  tokenizer,
  user,
} from "../support/fake-engine-chat.ts";

describe("a conversation", () => {
  it("appends: the second turn computes the new message and the end of the previous turn", async () => {
    const { chat, engine } = localChat(says("the and you 🫠", "ok"));
    const first = await ask(chat, { messages: [system, user("hello")] });
    expect(first).toMatchObject({ answer: "the and you 🫠", reason: "stop", completionTokens: 17 });
    expect(first.cacheUsage.reason).toBe("Nothing was resident.");
    const messages = [system, user("hello"), assistant("the and you 🫠"), user("more")];
    const second = await ask(chat, { messages });
    const added = tokenizer.encodeTemplate(
      "<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n<|im_start|>assistant\n",
    );
    expect(second.cacheUsage).toMatchObject({
      session: first.cacheUsage.session,
      kept: first.promptTokens + 16,
      relocated: 0,
      computed: added.length,
      stale: 0,
    });
    expectCells(chat, engine, messages, spell("ok"));
  });

  it("is found without a name by its surviving spans when its middle is edited", async () => {
    const { chat } = localChat(says("one", "two", "three", "four"));
    const old = [
      system,
      user(long("a")),
      assistant(long("b")),
      user(long("c")),
      assistant(long("d")),
      user("go"),
    ];
    const first = await ask(chat, { messages: old });
    const compacted = [system, user("Summary of a and b."), ...old.slice(3), assistant("one"), user("next")];
    const second = await ask(chat, { messages: compacted });
    expect(second.cacheUsage.session).toBe(first.cacheUsage.session);
    expect(second.cacheUsage.relocated).toBeGreaterThan(250);
    expect(second.cacheUsage.computed).toBeLessThan(60);
    expect(second.cacheUsage.stale).toBe(second.cacheUsage.relocated);
    expect(chat.list()).toHaveLength(1);
    // Also if the summary replaces the first span.
    const folded = [
      { ...system, content: "All is told." },
      ...old.slice(3),
      assistant("one"),
      user("next"),
      assistant("two"),
      user("z"),
    ];
    const third = await ask(chat, { messages: folded });
    expect(third.cacheUsage.session).toBe(first.cacheUsage.session);
    expect(third.cacheUsage.relocated).toBeGreaterThan(250);
  });

  it("computes everything behind the edit with prefix reuse, and leaves no stale cells", async () => {
    const { chat } = localChat(says("one", "two"));
    const old = [system, user(long("a")), assistant(long("b")), user(long("c"))];
    await ask(chat, { messages: old });
    const { cacheUsage } = await ask(chat, {
      messages: [system, user("Summary."), ...old.slice(2)],
      reuse: "prefix",
    });
    expect(cacheUsage.relocated).toBe(0);
    expect(cacheUsage.stale).toBe(0);
    expect(cacheUsage.computed).toBeGreaterThan(200);
  });

  it("repairs surviving assistant messages on request", async () => {
    const { chat } = localChat(says("one", "two"));
    const old = [system, user(long("a")), assistant(long("b")), user(long("c"))];
    await ask(chat, { messages: old, session: "s" });
    const { cacheUsage, planned } = await ask(chat, {
      messages: [system, user("Summary."), ...old.slice(2)],
      session: "s",
      repair: "assistant",
    });
    expect(cacheUsage.relocated).toBeGreaterThan(100);
    expect(cacheUsage.computed).toBeGreaterThan(150);
    expect(cacheUsage).toEqual(planned.cacheUsage);
  });
});

describe("a completion", () => {
  it("accepts text or ids, and reuses its cells when the prompt has grown", async () => {
    const { chat } = localChat(hashing(256));
    const first = summary(await collect(chat.complete({ prompt: long("a"), maxTokens: 5 })));
    const ids = chat.tokenize(long("a"));
    const again = summary(await collect(chat.complete({ prompt: ids, maxTokens: 5 })));
    expect(again.answer).toBe(first.answer);
    expect(again.cacheUsage).toMatchObject({ kept: ids.length - 1, computed: 1 });
  });

  it("refuses an empty prompt and unknown ids, naming the field", async () => {
    const { chat } = localChat(hashing(256));
    await expect(collect(chat.complete({ prompt: "" }))).rejects.toMatchObject({ param: "prompt" });
    await expect(collect(chat.complete({ prompt: [1, 99_999] }))).rejects.toMatchObject({
      code: "BAD_REQUEST",
      param: "prompt.1",
    });
    expect(() => chat.detokenize([-1])).toThrow(expect.objectContaining({ param: "tokens.0" }));
  });

  it("tokenizes and detokenizes, control tokens included", () => {
    const { chat } = localChat(hashing(256));
    const ids = chat.tokenize("<|im_start|>the 🫠");
    expect(ids[0]).toBe(tokenizer.idOf("<|im_start|>"));
    expect(chat.detokenize(ids)).toBe("<|im_start|>the 🫠");
  });
});
