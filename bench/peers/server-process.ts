// A server in a process of its own, ours or another's: started, awaited until it answers, asked how much memory it
// has taken, stopped. Peak memory is VmHWM of Linux; elsewhere it is not a number.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { type IncomingMessage, request } from "node:http";
import { createServer } from "node:net";
import { text } from "node:stream/consumers";
import { endChild } from "./child-process.ts";

export interface ServerCommand {
  readonly file: string;
  readonly words: readonly string[];
  readonly environment?: NodeJS.ProcessEnv;
  /** Of the URL that answers 200 once the server is ready. */
  readonly readyPath: string;
  readonly readyMs?: number;
}

/** Stop it; it does not stop by itself. */
export class ServerProcess {
  private constructor(
    private readonly child: ChildProcess,
    /** Without a slash at the end. */
    readonly url: string,
    private readonly said: string[],
  ) {}

  /** Resolves when it answers. Rejects with its last words when it ends before, or takes too long. */
  static async start(command: (port: number) => ServerCommand): Promise<ServerProcess> {
    const port = await freePort();
    const { file, words, environment, readyPath, readyMs = 120_000 } = command(port);
    const child = spawn(file, words, { stdio: ["ignore", "pipe", "pipe"], env: environment ?? process.env });
    const said: string[] = [];
    for (const stream of [child.stdout!, child.stderr!]) {
      stream.on("data", (bytes: Buffer) => {
        said.push(bytes.toString());
        if (said.length > 200) said.shift();
      });
    }
    const failed = new Promise<never>((_, reject) => child.once("error", reject));
    failed.catch(() => undefined);
    const server = new ServerProcess(child, `http://127.0.0.1:${port}`, said);
    try {
      await Promise.race([server.#answers(readyPath, readyMs), failed]);
    } catch (cause) {
      await server.stop();
      throw cause;
    }
    return server;
  }

  /** Most bytes it ever had resident, pages of mapped files included. */
  peakBytes(): number {
    try {
      const status = readFileSync(`/proc/${this.child.pid}/status`, "utf8");
      return Number(status.match(/^VmHWM:\s+(\d+) kB$/m)?.[1]) * 1024;
    } catch {
      return Number.NaN;
    }
  }

  /** The answer's JSON. Rejects with the body when the status is not 200. */
  async post<Answer>(path: string, body: object): Promise<Answer> {
    // Not fetch: it gives up when no header has come for five minutes, and a peer may read a prompt for longer.
    const asked = request(`${this.url}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      signal: AbortSignal.timeout(3_600_000),
    });
    asked.end(JSON.stringify(body));
    const [response] = (await once(asked, "response")) as [IncomingMessage];
    const said = await text(response);
    if (response.statusCode !== 200)
      throw new Error(`${path} was answered ${response.statusCode}: ${said.slice(0, 500)}`);
    return JSON.parse(said) as Answer;
  }

  /** Asks it to end, then makes it; safe to repeat. */
  stop(): Promise<void> {
    return endChild(this.child, () => this.child.kill("SIGTERM"));
  }

  async #answers(path: string, limitMs: number): Promise<void> {
    const end = performance.now() + limitMs;
    while (performance.now() < end) {
      if (this.child.exitCode !== null || this.child.signalCode !== null) {
        throw new Error(
          `${this.child.spawnfile} ended before it was ready:\n${this.said.join("").slice(-2000)}`,
        );
      }
      const response = await fetch(`${this.url}${path}`).catch(() => undefined);
      await response?.body?.cancel();
      if (response?.ok) return;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
    throw new Error(
      `${this.child.spawnfile} was not ready in ${limitMs} ms:\n${this.said.join("").slice(-2000)}`,
    );
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, "close");
  return port;
}
