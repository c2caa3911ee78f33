// The runs that are under way in this process, beside the store that has all of them: begin, resume, watch, cancel.
// A run lives on when nobody watches; a run of another tenant does not exist. It knows no HTTP, and is handed a Chat
// with each run.
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
  /** Tokens that a run may have. */
  readonly context: number;
  /** Holds the workspaces, by tenant and name. Absent: runs have none. */
  readonly workspaces?: string | undefined;
  /** MCP servers whose tools every run has, as parseMcpServer takes them: programs, so never a request's to name. */
  readonly mcp?: readonly string[];
}

/** `workspace`: a name, no path. `window` absent: what there is. */
export interface LiveRunRequest
  extends Pick<RunOptions, "harness" | "maxTurns" | "nudge" | "force" | "tenant" | "answer" | "workspace"> {
  readonly task: string;
  readonly window?: number | undefined;
}

export interface LiveRun {
  readonly id: string;
  /** Resolves when it has ended, however it ended. */
  readonly ended: Promise<void>;
  /** Calls `watcher` with each event from here on; returns what ends that. */
  watch(watcher: (event: AgentEvent) => void): () => void;
}

interface Held extends LiveRun {
  readonly controller: AbortController;
}

export class LiveRuns {
  readonly #live = new Map<string, Held>();
  #closing = false;

  constructor(readonly options: LiveRunsOptions) {}

  /** Throws BAD_CONFIG where there are no workspaces, ENGINE_CLOSED once it closes. */
  begin({ workspace, window, ...order }: LiveRunRequest, chat: Chat): LiveRun {
    const { store, count, model, context } = this.options;
    const folder = workspace === undefined ? undefined : this.#folder(workspace, order.tenant);
    const whole = {
      ...order,
      model,
      window: Math.min(window ?? context, context),
      ...(folder === undefined ? {} : { workspace: folder }),
    };
    return this.#start(beginRun(store, whole, count), chat);
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

  /** Resolves with whether it was under way, once it has ended. Throws RUN_NOT_FOUND. */
  async cancel(id: string, tenant: string | undefined): Promise<boolean> {
    this.#info(id, tenant);
    const live = this.#live.get(id);
    live?.controller.abort(pocketError("RUN_INTERRUPTED", id));
    await live?.ended;
    return live !== undefined;
  }

  /** Ends what is under way so that it can be resumed; nothing begins after it. */
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
    const kit = openToolset({ workspace, window });
    const controller = new AbortController();
    const watchers = new Set<(event: AgentEvent) => void>();
    const onEvent = (event: AgentEvent) => {
      for (const watcher of watchers) watcher(event);
    };
    // What went wrong is the run's last event; nobody else waits for it.
    // It begins in the next tick, so that who watches at once sees everything.
    const { mcp = [] } = this.options;
    const drive = async () => {
      const servers = openMcpServers(mcp, resultCharacters(window));
      const tools = servers.then(({ tools }) => [...kit.tools, ...tools]);
      try {
        await driveRun(run, { chat, tools, signal: controller.signal, onEvent });
      } finally {
        await servers.then((opened) => opened.close()).catch(() => undefined);
      }
    };
    const ended = Promise.resolve()
      .then(drive)
      .catch(() => {})
      .finally(() => {
        this.#live.delete(id);
        kit.close();
      });
    const watch = (watcher: (event: AgentEvent) => void) => {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    };
    const held: Held = { id, ended, controller, watch };
    this.#live.set(id, held);
    return held;
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
