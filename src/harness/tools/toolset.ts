// The tools of a run: those of a workspace folder, those of a collection of documents, both or none. The size
// of results depends on the window, so that one result never fills it.
import type { AgentTool } from "../tool.ts";
import { Corpus, corpusTools, documentsOf } from "./corpus.ts";
import { editTool, readTool, writeTool } from "./files.ts";
import { listTool } from "./list.ts";
import { findSandbox, type Sandbox } from "./sandbox.ts";
import { searchTool } from "./search.ts";
import { shellTool } from "./shell.ts";
import { Workspace } from "./workspace.ts";

export interface ToolsetOptions {
  /** Path of a folder that the agent may change. */
  readonly workspace?: string | undefined;
  /** Path of a folder of documents that the agent may search. */
  readonly corpus?: string | undefined;
  /** Tokens of the run. */
  readonly window: number;
  /** Default: the strongest that works on this machine. */
  readonly sandbox?: Sandbox | undefined;
}

export interface Toolset {
  readonly tools: readonly AgentTool[];
  /** For the user: which isolation is missing. */
  readonly warnings: readonly string[];
  /** Idempotent. */
  close(): void;
}

/** Throws BAD_CONFIG for a folder that cannot be used. The caller closes the toolset. */
export function openToolset({ workspace, corpus, window, sandbox }: ToolsetOptions): Toolset {
  const maxCharacters = resultCharacters(window);
  const documents = corpus === undefined ? undefined : new Corpus(documentsOf(new Workspace(corpus).root));
  const isolation = workspace === undefined ? undefined : (sandbox ?? findSandbox());
  return {
    tools: [
      ...(workspace !== undefined && isolation
        ? workspaceTools(new Workspace(workspace), maxCharacters, isolation)
        : []),
      ...(documents ? corpusTools(documents, maxCharacters) : []),
    ],
    warnings: isolation?.warning ? [isolation.warning] : [],
    close: () => documents?.close(),
  };
}

/**
 * Of one result: a sixth of the window at about three characters per token, from 600 to 16,000. `window`:
 * tokens.
 */
export function resultCharacters(window: number): number {
  return Math.max(600, Math.min(16_000, Math.floor(window / 2)));
}

function workspaceTools(workspace: Workspace, maxCharacters: number, sandbox: Sandbox): AgentTool[] {
  return [
    readTool(workspace, maxCharacters),
    listTool(workspace, maxCharacters),
    searchTool(workspace, { maxCharacters }),
    editTool(workspace),
    writeTool(workspace),
    shellTool(workspace, { sandbox, maxCharacters }),
  ];
}
