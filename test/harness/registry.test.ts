// The registry of harnesses: every entry is a policy that works on the loop.
import { describe, expect, test } from "vitest";
import { limitsOf } from "../../src/harness/limits.ts";
import { AgentLoop } from "../../src/harness/loop.ts";
import { instructionsOf } from "../../src/harness/policies/policy.ts";
import { harnessNames, policyOf } from "../../src/harness/policies/registry.ts";
import { conversationOf, ScriptedChat } from "../support/fake-chat.ts";
import { read } from "./agents.ts";

test("the names are those that stored runs and users have", () => {
  expect(harnessNames).toEqual(["pca", "react"]);
});

describe.each(harnessNames)("the harness %s", (harness) => {
  test("has a policy of its own name, which works on a task to its answer", async () => {
    const policy = policyOf({ harness });
    expect(policy.name).toBe(harness);
    const conversation = conversationOf({ instructions: instructionsOf(policy) });
    conversation.request({ role: "user", content: "Find the answer." });
    const calls = [{ id: "1", name: "read", arguments: '{"size":9}' }];
    const chat = new ScriptedChat([{ text: "I read.", calls }, { text: "42." }]);
    const limits = limitsOf(10_000);
    const result = await new AgentLoop({ chat, policy, conversation, tools: [read], limits }).run();
    expect(result).toMatchObject({ outcome: "answered", answer: "42." });
    const offered = chat.requests[0]!.tools!.map(({ name }) => name);
    expect(offered).toEqual([...policy.tools.map(({ name }) => name), "read"]);
  });

  test("is nudged or forced only if it can compact, and is named so", () => {
    const canCompact = policyOf({ harness }).tools.some(({ name }) => name === "compact_block");
    expect(policyOf({ harness, nudge: 0.5 }).name).toBe(canCompact ? `${harness}+nudge` : harness);
    expect(policyOf({ harness, nudge: 0.5, force: true }).name).toBe(
      canCompact ? `${harness}+force` : harness,
    );
  });
});
