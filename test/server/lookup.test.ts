// Prompt lookup as a client sees it: on by default, off by request, and counted in usage, cache usage and metrics.
import { afterAll, beforeAll, expect, it } from "vitest";
import { startTinyServer, type TinyServer } from "../support/tiny-server.ts";

let server: TinyServer;
beforeAll(async () => {
  server = await startTinyServer({ lookup: "true" });
});
afterAll(() => server?.close());

interface Body {
  readonly choices: readonly [{ readonly message: { readonly content: string } }];
  readonly usage: {
    readonly completion_tokens: number;
    readonly completion_tokens_details: {
      readonly accepted_prediction_tokens: number;
      readonly rejected_prediction_tokens: number;
    };
  };
  readonly pocket: { readonly proposed?: number; readonly accepted?: number };
}

async function ask(pocket: object): Promise<Body> {
  const response = await fetch(`http://127.0.0.1:${server.port}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({
      messages: [{ role: "user", content: "one two three one two three one two three" }],
      max_tokens: 80,
      temperature: 0,
      frequency_penalty: -0.6,
      pocket,
    }),
  });
  expect(response.status).toBe(200);
  return (await response.json()) as Body;
}

async function counter(name: string): Promise<number> {
  const text = await (await fetch(`http://127.0.0.1:${server.port}/metrics`)).text();
  return Number(text.match(new RegExp(`^pocket_${name} (\\d+)$`, "m"))?.[1]);
}

it("usage, cache usage and metrics count drafted and accepted tokens; the answer is the one without", async () => {
  const off = await ask({ lookup: false });
  const none = { accepted_prediction_tokens: 0, rejected_prediction_tokens: 0 };
  expect(off.usage.completion_tokens_details).toEqual(none);
  expect(off.pocket).not.toHaveProperty("proposed");
  expect(await counter("spec_decode_num_draft_tokens_total")).toBe(0);
  const on = await ask({});
  expect(on.choices[0].message.content).toBe(off.choices[0].message.content);
  const { accepted_prediction_tokens: accepted, rejected_prediction_tokens: rejected } =
    on.usage.completion_tokens_details;
  expect(accepted).toBeGreaterThan(0);
  expect(accepted).toBeLessThan(on.usage.completion_tokens);
  expect(on.pocket).toMatchObject({ proposed: accepted + rejected, accepted });
  expect(await counter("spec_decode_num_draft_tokens_total")).toBe(accepted + rejected);
  expect(await counter("spec_decode_num_accepted_tokens_total")).toBe(accepted);
});
