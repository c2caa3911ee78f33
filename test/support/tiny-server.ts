// Server, session, engine and addon on the seeded tiny model, as `pocket serve` constructs them, on a free port.
import { mkdtempSync, rmSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import OpenAI from "openai";
import { openLocalModel } from "../../src/cli/local-model.ts";
import { Config } from "../../src/config/config.ts";
import { buildServer } from "../../src/server/app.ts";
import { serverOptions } from "./scripted-backend.ts";
import { ensureTinyModel } from "./tiny-model.ts";

export interface TinyServer {
  readonly port: number;
  readonly client: OpenAI;
  health(): Promise<{
    running: number;
    pagesUsed: number;
    pagesLent: number;
    pagesFree: number;
    pages: number;
    tokensComputed: number;
  }>;
  close(): Promise<void>;
}

export async function startTinyServer(flags: Record<string, string> = {}): Promise<TinyServer> {
  const directory = mkdtempSync(join(tmpdir(), "pocket-tiny-"));
  const folder = await ensureTinyModel(directory, { context: 8192 });
  // Without a penalty greedy answers of the random model fall into loops, and so may be long.
  const penalty = { "sampling.repetition_penalty": "1" };
  // Tests compare counts before and after, so nothing may be computed in the background.
  const quiet = { ...penalty, idle_repair: "false", repair: "none", lookup: "false" };
  const given = { "cache.tokens": "16384", activations: "f32", threads: "2", ...quiet, ...flags };
  const model = await openLocalModel(folder, Config.read({ flags: given, environment: {} }));
  const app = buildServer(model.backend, serverOptions);
  await app.listen({ host: "127.0.0.1", port: 0 });
  const { port } = app.server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}`;
  return {
    port,
    client: new OpenAI({ baseURL: `${url}/v1`, apiKey: "none", maxRetries: 0 }),
    async health() {
      const { engine } = (await (await fetch(`${url}/health`)).json()) as { engine: object };
      return engine as Awaited<ReturnType<TinyServer["health"]>>;
    },
    async close() {
      await app.close();
      await model.close();
      rmSync(directory, { recursive: true });
    },
  };
}
