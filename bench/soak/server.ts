// Where a soak takes place: the tiny model behind the real server on a socket, a pool that is much too small,
// and a runner that fails now and then. The same opening without faults and with room is the idle server that
// answers are compared with.
import { mkdtempSync, rmSync } from "node:fs";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { openLocalModel } from "../../src/cli/local-model.ts";
import { serverOptions } from "../../src/cli/serve.ts";
import { Config } from "../../src/config/config.ts";
import type { Runner } from "../../src/engine/addon.ts";
import { buildServer } from "../../src/server/app.ts";
import type { Backend } from "../../src/server/backend.ts";
import { ensureTinyModel } from "../../test/support/tiny-model.ts";

export interface SoakServer {
  readonly url: string;
  readonly backend: Backend;
  /** The real one, under the faults. */
  readonly runner: Runner;
  /** Lets every session go, and all that is kept of earlier ones. */
  release(): Promise<void>;
  close(): Promise<void>;
}

export interface SoakServerOptions {
  readonly cacheTokens: number;
  /** Puts faults between engine and runner. */
  readonly wrap?: (runner: Runner) => Runner;
  /** Settings on top. */
  readonly flags?: Readonly<Record<string, string>>;
}

export async function openSoakServer({
  cacheTokens,
  wrap = (real) => real,
  flags,
}: SoakServerOptions): Promise<SoakServer> {
  const directory = mkdtempSync(join(tmpdir(), "pocket-soak-"));
  const folder = await ensureTinyModel(directory, { context: 2048 });
  const config = Config.read({
    flags: {
      "cache.tokens": String(cacheTokens),
      "cache.kv_type": "f32",
      activations: "f32",
      // Without a penalty greedy answers of a random model fall into loops, and so may be long.
      "sampling.repetition_penalty": "1",
      "sampling.temperature": "0",
      "cache.dir": join(directory, "sessions"),
      log: "silent",
      threads: "2",
      ...flags,
    },
    environment: {},
  });
  let runner: Runner | undefined;
  const model = await openLocalModel(folder, config, {
    wrap(real) {
      runner = real;
      return wrap(real);
    },
    // Files that fail are part of the plan.
    log: () => undefined,
  });
  const app = buildServer(model.backend, serverOptions(config));
  await app.listen({ host: "127.0.0.1", port: 0 });
  const { port } = app.server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    backend: model.backend,
    runner: runner!,
    release: () => model.release(),
    async close() {
      await app.close();
      await model.close();
      rmSync(directory, { recursive: true });
    },
  };
}
