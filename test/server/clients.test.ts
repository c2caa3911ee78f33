// The two client libraries that agents are built on besides the official one: the AI SDK and LangChain. Each runs a
// loop with calls over the real server on the scripted engine.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { type AIMessageChunk, HumanMessage, ToolMessage } from "@langchain/core/messages";
import { ChatOpenAI } from "@langchain/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { afterEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { type ScriptedServer, serveAnswers, tagged } from "../support/scripted-server.ts";

let server: ScriptedServer;
afterEach(() => server.close());

const paris = tagged("weather", { city: "Paris" });
const rome = tagged("weather", { city: "Rome" });

describe("the AI SDK", () => {
  const model = () =>
    createOpenAICompatible({ name: "pocket", baseURL: server.url, apiKey: "none", includeUsage: true })(
      "tiny",
    );
  const asked: string[] = [];
  const tools = {
    weather: tool({
      description: "Tells the weather.",
      inputSchema: z.object({ city: z.string() }),
      execute: ({ city }) => {
        asked.push(city);
        return `${city}: sun`;
      },
    }),
  };

  test.each([["generated"], ["streamed"]])("runs parallel calls and reads the answer, %s", async (way) => {
    server = await serveAnswers(`Let me see.\n${paris}\n${rome}`, "Sun in both.");
    asked.length = 0;
    const options = { tools, prompt: "Paris and Rome?", stopWhen: stepCountIs(3) };
    const result =
      way === "generated"
        ? await generateText({ model: model(), ...options })
        : streamText({ model: model(), ...options });
    const steps = await result.steps;
    expect(await result.text).toBe("Sun in both.");
    expect(asked).toEqual(["Paris", "Rome"]);
    expect(steps.map(({ finishReason }) => finishReason)).toEqual(["tool-calls", "stop"]);
    const [first, second] = steps.map(({ usage }) => usage);
    const spoken = first!.inputTokens! + first!.outputTokens!;
    expect(second!.inputTokenDetails.cacheReadTokens).toBeGreaterThanOrEqual(spoken - 2);
  });
});

describe("LangChain", () => {
  const model = () =>
    new ChatOpenAI({
      model: "tiny",
      apiKey: "none",
      maxRetries: 0,
      useResponsesApi: false,
      configuration: { baseURL: server.url },
    });
  const weather = {
    type: "function" as const,
    function: { name: "weather", parameters: { type: "object", properties: { city: { type: "string" } } } },
  };

  test("collects streamed calls and continues with their results", async () => {
    server = await serveAnswers(`Wait.\n${paris}\n${rome}`, "Sun in both.");
    const bound = model().bindTools([weather]);
    const question = new HumanMessage("Paris and Rome?");
    let gathered: AIMessageChunk | undefined;
    for await (const chunk of await bound.stream([question])) gathered = gathered?.concat(chunk) ?? chunk;
    const calls = gathered!.tool_calls!;
    expect(calls.map(({ name, args }) => [name, args])).toEqual([
      ["weather", { city: "Paris" }],
      ["weather", { city: "Rome" }],
    ]);
    expect(gathered!.invalid_tool_calls).toEqual([]);
    const results = calls.map(
      ({ id, args }) => new ToolMessage({ tool_call_id: id!, content: `${args.city}: sun` }),
    );
    const answer = await bound.invoke([question, gathered!, ...results]);
    expect(answer.content).toBe("Sun in both.");
    const spoken = usageOf(gathered!).total_tokens;
    expect(usageOf(answer).input_token_details.cache_read).toBeGreaterThanOrEqual(spoken - 2);
  });
});

interface Usage {
  readonly total_tokens: number;
  readonly input_token_details: { readonly cache_read: number };
}

/** The package's own type says that there is none. */
function usageOf(message: AIMessageChunk): Usage {
  return message.usage_metadata as unknown as Usage;
}
