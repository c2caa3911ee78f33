// Runs the example of the README, and checks the entry in package.json.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { packageRoot } from "../../src/cli/package-root.ts";
import { type Line, ScriptedChat } from "../support/fake-chat.ts";
import { type MyTool, myAgent } from "./example.ts";

const call = (name: string, given: object): Line => ({
  text: `I ${name}.`,
  calls: [{ id: name, name, arguments: JSON.stringify(given) }],
});

test("the example compacts, expands and answers, and keeps every original", async () => {
  const file = "The answer is 42. ".repeat(40);
  const read: MyTool = { name: "read", run: async () => file };
  const script = [
    call("read", {}),
    call("look", {}),
    call("compact_block", { start: "b001", end: "b001" }),
    { text: "A file was read." },
    call("expand_block", { tag: "ctx-0001" }),
    { text: "42." },
  ];
  const chat = new ScriptedChat(script);
  const { answer, conversation, close } = await myAgent(chat, "What is the answer?", [read], ":memory:");
  expect(answer).toBe("42.");
  expect(conversation.archive.tags).toEqual(["ctx-0001"]);
  const shown = (index: number) => chat.requests[index]!.messages.map(({ content }) => content).join("\n");
  expect([1, 2, 4, 5].map((index) => shown(index).includes(file))).toEqual([true, true, false, true]);
  expect(shown(2)).toContain("There is no tool look.");
  close();
});

test("the example has at most 40 lines and imports what package.json exports", () => {
  const root = packageRoot();
  const lines = readFileSync(join(root, "test", "context", "example.ts"), "utf8").split("\n");
  const from = lines.findIndex((line) => line.startsWith("export async function"));
  expect(lines.length - 1 - from).toBeLessThanOrEqual(40);
  const { exports } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const built: string = exports["./context"].default;
  expect(existsSync(join(root, built.replace("./dist/", "").replace(/\.js$/, ".ts")))).toBe(true);
});
