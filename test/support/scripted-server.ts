// A server over the real session room on the scripted engine: answers are given as text, everything from tokens to
// the wire is real. For tests of what clients make of tool calls.
import type { AddressInfo } from "node:net";
import OpenAI from "openai";
import { buildServer } from "../../src/server/app.ts";
import { localChat, says } from "./fake-engine-chat.ts";
import { ScriptedBackend, serverOptions } from "./scripted-backend.ts";
import { chatml, smallText } from "./small-tokenizer.ts";

export interface ScriptedServer {
  readonly url: string;
  readonly client: OpenAI;
  /** The prompts that were computed, as text, so far. */
  prompts(): readonly string[];
  close(): Promise<void>;
}

/** Prints tools and calls, unlike the model does. */
export const toolTemplate = `{% if tools %}{{ '<|im_start|>system\n' + (tools | tojson) + '<|im_end|>\n' }}{% endif %}${chatml.replace(
  "message['content'] + ",
  "message['content'] + (message['tool_calls'] | tojson if message['tool_calls'] else '') + ",
)}`;

export async function serveAnswers(...answers: string[]): Promise<ScriptedServer> {
  const { chat } = localChat(says(...answers), smallText(toolTemplate));
  const backend = new ScriptedBackend();
  const prompts: string[] = [];
  backend.chat = (request) => {
    prompts.push(chat.applyTemplate(request.messages, request.tools).text);
    return chat.chat(request);
  };
  const app = buildServer(backend, serverOptions);
  await app.listen({ host: "127.0.0.1", port: 0 });
  const url = `http://127.0.0.1:${(app.server.address() as AddressInfo).port}/v1`;
  return {
    url,
    client: new OpenAI({ baseURL: url, apiKey: "none", maxRetries: 0 }),
    prompts: () => prompts,
    async close() {
      await app.close();
      await chat.close();
    },
  };
}

export const tagged = (name: string, given: object | string) =>
  `<tool_call>\n{"name": "${name}", "arguments": ${typeof given === "string" ? given : JSON.stringify(given)}}\n</tool_call>`;
