// pocket serve: opens the model, listens, prints a line to try, and closes in reverse order on a signal.
import type { AddressInfo } from "node:net";
import type { Config } from "../config/config.ts";
import { LiveRuns } from "../harness/live-runs.ts";
import { parseMcpServer } from "../harness/tools/mcp.ts";
import { buildServer } from "../server/app.ts";
import type { Backend, ServerOptions } from "../server/backend.ts";
import { localCount, localWindow, openStore } from "./agent-runtime.ts";
import { folderOf } from "./import.ts";
import { checkPort, closeOnSignal, listenError } from "./listen.ts";
import { openLocalModel } from "./local-model.ts";
import { folderState, pull } from "./pull.ts";

/** Resolves once it listens; the process then lives until a signal. */
export async function serve(config: Config, options: { readonly pull: boolean }): Promise<void> {
  const host = config.text("host");
  const port = config.number("port");
  const id = config.text("model");
  const folder = folderOf(id, config);
  await checkPort(host, port);
  if (options.pull && folderState(folder) !== "here") await pull(id, config);

  const startedAt = Date.now();
  const model = await openLocalModel(folder, config);
  const agent = agentOptions(model.backend, config);
  const app = buildServer(model.backend, { ...serverOptions(config), ...(agent && { agent }) });
  const close = async () => {
    agent?.runs.options.store.close();
    await model.close();
  };
  try {
    await app.listen({ host, port });
  } catch (cause) {
    await close();
    throw listenError(cause, host, port);
  }
  closeOnSignal(async () => {
    await app.close();
    await close();
  });
  announce(app.server.address() as AddressInfo, config, model.manifest.id, Date.now() - startedAt);
}

export function serverOptions(config: Config): ServerOptions {
  return {
    activeRequests: config.number("server.active"),
    queuedRequests: config.number("server.queue"),
    bodyBytes: config.number("server.body_limit"),
    apiKeys: apiKeysOf(config),
    allowedHosts: config.texts("server.allowed_hosts"),
    keepAliveMs: config.number("server.keep_alive") * 1000,
    logLevel: config.choice("log"),
  };
}

/** Undefined where agent runs are off. The store in it is the caller's to close, after the server. */
export function agentOptions(backend: Backend, config: Config): ServerOptions["agent"] {
  if (!config.flag("agent.enabled")) return undefined;
  const mcp = config.texts("agent.mcp");
  for (const server of mcp) parseMcpServer(server);
  const runs = new LiveRuns({
    store: openStore(config),
    count: localCount(backend),
    model: backend.model.id,
    context: localWindow(backend, config),
    workspaces: config.optional("agent.workspaces"),
    mcp,
  });
  return { runs, withoutKey: config.flag("agent.without_key") };
}

function apiKeysOf(config: Config): readonly string[] {
  const first = config.optional("server.api_key");
  return [...new Set([...(first === undefined ? [] : [first]), ...config.texts("server.api_keys")])];
}

function announce({ address, family, port }: AddressInfo, config: Config, id: string, ms: number): void {
  const isOpen = address === "0.0.0.0" || address === "::";
  const name = isOpen ? "127.0.0.1" : family === "IPv6" ? `[${address}]` : address;
  const isKeyed = apiKeysOf(config).length > 0;
  const lines = [
    `listening on http://${name}:${port} (${id}, ready in ${(ms / 1000).toFixed(1)} s); Ctrl-C ends`,
    "",
    `  curl http://${name}:${port}/v1/chat/completions -H 'content-type: application/json' \\`,
    ...(isKeyed ? ['    -H "authorization: Bearer $POCKET_SERVER_API_KEY" \\'] : []),
    `    -d '{"messages": [{"role": "user", "content": "Write a haiku about a river."}]}'`,
    "",
  ];
  process.stdout.write(`${lines.join("\n")}\n`);
  if (!isKeyed && !/^(127\.|::1$)/.test(address)) {
    process.stderr.write(
      "pocket: anyone who can reach this address can use the server; set server.api_key\n",
    );
  }
}
