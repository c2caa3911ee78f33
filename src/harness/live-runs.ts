// The runs that this process is executing, next to the store that has all runs: begin, resume, watch, cancel.
// A run continues without watchers. Runs of another tenant do not exist for a caller. No HTTP; each run gets a
// Chat from its caller.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Chat } from "../chat/chat.ts";
import type { CountTokens } from "../context/block.ts";
import type { Run, RunInfo, Store } from "../context/store.ts";
import { pocketError } from "../errors.ts";
import type { AgentEvent } from "./events.ts";
import { type RunReport, readReport } from "./report.ts";
import { beginRun, driveRun, resumeRun } from "./run.ts";
import { type RunOptions, runOptionsOf } from "./run-options.ts";
import { openMcpServers } from "./tools/mcp.ts";
import { openToolset, resultCharacters } from "./tools/toolset.ts";

export interface LiveRunsOptions {
  readonly store: Store;
  readonly count: CountTokens;
  readonly model: string;
  /** Maximum window of a run, in tokens. */
  readonly context: number;
  /** Folder of the workspaces, as `<tenant>/<name>`. Absent: runs have no workspace. */
  readonly workspaces?: string | undefined;
  /**
   * MCP servers for every run, in the syntax of parseMcpServer. They are programs, so a request cannot name
   * any.
   */
  readonly mcp?: readonly string[];
}

/** `workspace`: a name, not a path. `window`: tokens, at most `context`. Default: `context`. */
export interface LiveRunRequest
  extends Pick<RunOptions, "harness" | "maxTurns" | "nudge" | "force" | "tenant" | "answer" | "workspace"> {
  readonly task: string;
  readonly window?: number | undefined;
}

export interface LiveRun {
  readonly id: string;
  /** Resolves when the run has ended for any reason; never rejects. */
  readonly ended: Promise<void>;
  /** Calls `watcher` with each event from now on; returns a function that stops this. */
  watch(watcher: (event: AgentEvent) => void): () => void;
}

interface CancellableRun extends LiveRun {
  readonly controller: AbortController;
}

export class LiveRuns {
  readonly #live = new Map<string, CancellableRun>();
  #closing = false;

  constructor(readonly options: LiveRunsOptions) {}

  /** Throws BAD_CONFIG if the request names a workspace and there are none, ENGINE_CLOSED after `close`. */
  begin({ workspace, window, ...options }: LiveRunRequest, chat: Chat): LiveRun {
    const { store, count, model, context } = this.options;
    const folder = workspace === undefined ? undefined : this.#folder(workspace, options.tenant);
    const complete = {
      ...options,
      model,
      window: Math.min(window ?? context, context),
      ...(folder === undefined ? {} : { workspace: folder }),
    };
    return this.#start(beginRun(store, complete, count), chat);
  }

  /** Throws RUN_NOT_FOUND, RUN_BUSY, RUN_ANSWERED. */
  resume(id: string, tenant: string | undefined, task: string | undefined, chat: Chat): LiveRun {
    this.#info(id, tenant);
    if (this.#live.has(id)) throw pocketError("RUN_BUSY", id);
    return this.#start(resumeRun(this.options.store, id, this.options.count, task), chat);
  }

  /** Newest first. */
  list(tenant: string | undefined): RunInfo[] {
    return this.options.store.list().filter((info) => tenantOf(info) === tenant);
  }

  /** Throws RUN_NOT_FOUND. */
  get(
    id: string,
    tenant: string | undefined,
  ): { readonly info: RunInfo; readonly report: RunReport; readonly live: LiveRun | undefined } {
    const info = this.#info(id, tenant);
    return { info, report: readReport(this.options.store.database, id), live: this.#live.get(id) };
  }

  /** Resolves when the run has ended, with whether it was running. Throws RUN_NOT_FOUND. */
  async cancel(id: string, tenant: string | undefined): Promise<boolean> {
    this.#info(id, tenant);
    const live = this.#live.get(id);
    live?.controller.abort(pocketError("RUN_INTERRUPTED", id));
    await live?.ended;
    return live !== undefined;
  }

  /** Stops all runs so that they can be resumed. No run begins afterwards. */
  async close(): Promise<void> {
    this.#closing = true;
    const lives = [...this.#live.values()];
    for (const { controller } of lives) controller.abort(pocketError("ENGINE_CLOSED"));
    await Promise.all(lives.map(({ ended }) => ended));
  }

  #start(run: Run, chat: Chat): LiveRun {
    if (this.#closing) throw pocketError("ENGINE_CLOSED");
    const { id } = run.info;
    const { workspace, window } = runOptionsOf(run.info);
    const toolset = openToolset({ workspace, window });
    const controller = new AbortController();
    const watchers = new Set<(event: AgentEvent) => void>();
    const onEvent = (event: AgentEvent) => {
      for (const watcher of watchers) watcher(event);
    };
    const { mcp = [] } = this.options;
    const drive = async () => {
      const servers = openMcpServers(mcp, resultCharacters(window));
      const tools = servers.then(({ tools }) => [...toolset.tools, ...tools]);
      try {
        await driveRun(run, { chat, tools, signal: controller.signal, onEvent });
      } finally {
        await servers.then((opened) => opened.close()).catch(() => undefined);
      }
    };
    // Starts in the next tick, so that a caller that watches at once sees every event. An error is in the
    // last event.
    const ended = Promise.resolve()
      .then(drive)
      .catch(() => {})
      .finally(() => {
        this.#live.delete(id);
        toolset.close();
      });
    const watch = (watcher: (event: AgentEvent) => void) => {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    };
    const live: CancellableRun = { id, ended, controller, watch };
    this.#live.set(id, live);
    return live;
  }

  #info(id: string, tenant: string | undefined): RunInfo {
    const { store } = this.options;
    const info = this.list(tenant).find((run) => run.id === id);
    if (!info) throw pocketError("RUN_NOT_FOUND", id, store.file);
    return info;
  }

  #folder(name: string, tenant = "local"): string {
    const { workspaces } = this.options;
    if (workspaces === undefined)
      throw pocketError("BAD_CONFIG", "Runs have no workspaces on this server; agent.workspaces is not set.");
    const folder = join(workspaces, tenant, name);
    mkdirSync(folder, { recursive: true });
    return folder;
  }
}

function tenantOf({ settings }: RunInfo): string | undefined {
  return (settings as { readonly tenant?: string } | null)?.tenant;
}
