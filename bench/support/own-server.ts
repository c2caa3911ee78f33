// Our server as a user runs it: built, in a process of its own, over HTTP. TypeScript is compiled first, so that
// the current tree is measured.
import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { packageRoot } from "../../src/cli/package-root.ts";
import { ServerProcess } from "../peers/server-process.ts";

export interface OwnServerOptions {
  /** As `pocket serve --model` takes it. */
  readonly id: string;
  readonly weights: string;
  /** Settings on top, by key, such as `cache.kv_type`. */
  readonly settings: Readonly<Record<string, string>>;
}

interface Completion {
  readonly usage: { readonly prompt_tokens: number; readonly completion_tokens: number };
  readonly pocket: { readonly kept: number; readonly computed: number };
}

/** Stop it. */
export class OwnServer {
  private constructor(private readonly process: ServerProcess) {}

  static async start({ id, weights, settings }: OwnServerOptions): Promise<OwnServer> {
    const root = packageRoot();
    execFileSync("npm", ["run", "--silent", "build:ts"], {
      cwd: root,
      stdio: ["ignore", "ignore", "inherit"],
    });
    const all = { ...settings, weights, idle_repair: "false", log: "silent", "agent.enabled": "false" };
    const environment = { ...process.env };
    for (const [key, value] of Object.entries(all)) {
      environment[`POCKET_${key.toUpperCase().replaceAll(".", "_")}`] = value;
    }
    return new OwnServer(
      await ServerProcess.start((port) => ({
        file: process.execPath,
        words: [join(root, "dist/src/main.js"), "serve", "--model", id, "--port", String(port)],
        environment,
        readyPath: "/health",
      })),
    );
  }

  get url(): string {
    return this.process.url;
  }

  /** Of token ids; the fields of `body` are those of /v1/completions. */
  complete(prompt: readonly number[], count: number, body: object = {}): Promise<Completion> {
    return this.process.post("/v1/completions", { prompt, max_tokens: count, ...body });
  }

  peakBytes(): number {
    return this.process.peakBytes();
  }

  stop(): Promise<void> {
    return this.process.stop();
  }
}
