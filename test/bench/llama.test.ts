// The peer's side without the peer: a script that speaks enough of llama-server to be started, asked and stopped,
// with bookkeeping of its own for what it has cached.
import { rmSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { PeerEngine } from "../../bench/engine/peer-engine.ts";
import { LlamaServer, openLlama, rowsOf } from "../../bench/peers/llama.ts";
import { PeersFolder } from "./peers-folder.ts";

const script = `#!${process.execPath}
const { createServer } = require("node:http");
const words = process.argv.slice(2);
let cached = [];
createServer((request, response) => {
  if (request.url === "/health") return response.end("{}");
  if (request.url === "/words") return response.end(JSON.stringify(words));
  let text = "";
  request.on("data", (bytes) => (text += bytes));
  request.on("end", () => {
    const { prompt, n_predict, cache_prompt } = JSON.parse(text);
    let kept = 0;
    while (cache_prompt && kept < prompt.length - 1 && cached[kept] === prompt[kept]) kept++;
    cached = prompt;
    const computed = prompt.length - kept;
    response.end(JSON.stringify({ content: "x", tokens_predicted: n_predict, timings: {
      cache_n: kept, prompt_n: computed, prompt_ms: computed * 1000, predicted_n: n_predict,
      predicted_ms: (n_predict - 1) * 500,
    } }));
  });
}).listen(Number(words[words.indexOf("--port") + 1]), "127.0.0.1");
`;

const options = { gguf: "w.gguf", threads: 2, context: 64, kvType: "q8_0", flashAttention: true } as const;
let folder: PeersFolder;
let peer: PeerEngine | undefined;

beforeEach(() => {
  folder = new PeersFolder();
  folder.place("llama.cpp/llama-server", script);
});

afterEach(async () => {
  await peer?.close();
  peer = undefined;
  folder.remove();
});

describe("llama.cpp as a peer engine", () => {
  test("computes what stands behind the context and nothing else", async () => {
    peer = await openLlama(options);
    const prompt = [1, 2, 3, 4, 5, 6];
    expect(await peer.resident(prompt)).toBe(6);
    expect(await peer.prefill(prompt.slice(0, 4), [50, 60])).toBe(2);
    expect(await peer.prefill(prompt.slice(0, 4), [70, 80])).toBe(2);
  });

  test("that had part of the text already is not believed", async () => {
    peer = await openLlama(options);
    await peer.resident([1, 2, 3, 4]);
    await peer.prefill([1, 2], [50, 60]);
    await expect(peer.prefill([1, 2], [50, 61])).rejects.toThrow("computed 1 tokens of the prompt and not 2");
  });

  test("is timed for as many steps as asked for: the token from the prompt is not one", async () => {
    peer = await openLlama(options);
    expect(await peer.decode([1, 2], 32)).toBe(16);
  });

  test("is started with its type of keys and values and the context of all slots", async () => {
    const server = await LlamaServer.start({ ...options, slots: 8, words: ["--cache-reuse", "64"] });
    const words = ((await (await fetch(`${server.url}/words`)).json()) as string[]).join(" ");
    await server.stop();
    for (const part of ["-np 8", "-c 512", "-ctk q8_0 -ctv q8_0", "-fa on", "-t 2", "--cache-reuse 64"]) {
      expect(words).toContain(part);
    }
    await expect(fetch(server.url)).rejects.toThrow();
  });

  test("that ends at once says its last words", async () => {
    folder.place("llama.cpp/llama-server", "#!/bin/sh\necho no such model >&2; exit 3\n");
    await expect(LlamaServer.start(options)).rejects.toThrow("no such model");
  });

  test("that is not built names the script that builds it", async () => {
    rmSync(join(folder.path, "llama.cpp/llama-server"));
    await expect(LlamaServer.start(options)).rejects.toThrow("scripts/peers");
  });
});

test("llama-bench's rows keep their samples under our names", () => {
  const json = JSON.stringify([
    { n_prompt: 512, n_gen: 0, samples_ts: [1, 2] },
    { n_prompt: 0, n_gen: 32, samples_ts: [3] },
  ]);
  expect(rowsOf(json)).toEqual([
    { row: "pp512", samples: [1, 2] },
    { row: "tg32", samples: [3] },
  ]);
});
