// The tools an agent is given for a task: those of a workspace folder, those of a collection of documents, both or
// neither. Made once per run; the size of results follows the window, so that one result never fills it.
import type { AgentTool } from "../tool.ts";
import { Corpus, corpusTools, documentsOf } from "./corpus.ts";
import { editTool, readTool, writeTool } from "./files.ts";
import { listTool } from "./list.ts";
import { findSandbox, type Sandbox } from "./sandbox.ts";
import { searchTool } from "./search.ts";
import { shellTool } from "./shell.ts";
import { Workspace } from "./workspace.ts";

export interface ToolsetOptions {
  /** A folder that the agent may change. */
  readonly workspace?: string | undefined;
  /** A folder of documents that it may search. */
  readonly corpus?: string | undefined;
  /** Tokens of the run. */
  readonly window: number;
  /** Default: the strongest that works here. */
  readonly sandbox?: Sandbox | undefined;
}

export interface Toolset {
  readonly tools: readonly AgentTool[];
  /** For people, once: what does not protect as it should. */
  readonly warnings: readonly string[];
  /** Idempotent. */
  close(): void;
}

/** Throws BAD_CONFIG for folders that cannot be used. */
export function openToolset({ workspace, corpus, window, sandbox }: ToolsetOptions): Toolset {
  const most = resultCharacters(window);
  const documents = corpus === undefined ? undefined : new Corpus(documentsOf(new Workspace(corpus).root));
  const fence = workspace === undefined ? undefined : (sandbox ?? findSandbox());
  return {
    tools: [
      ...(workspace !== undefined && fence ? workspaceTools(new Workspace(workspace), most, fence) : []),
      ...(documents ? corpusTools(documents, most) : []),
    ],
    warnings: fence?.warning ? [fence.warning] : [],
    close: () => documents?.close(),
  };
}

/** A sixth of the window at about three characters a token; 16,000 are enough for any. */
export function resultCharacters(window: number): number {
  return Math.max(600, Math.min(16_000, Math.floor(window / 2)));
}

function workspaceTools(workspace: Workspace, most: number, sandbox: Sandbox): AgentTool[] {
  return [
    readTool(workspace, most),
    listTool(workspace, most),
    searchTool(workspace, { most }),
    editTool(workspace),
    writeTool(workspace),
    shellTool(workspace, { sandbox, most }),
  ];
}
