// The tool `shell`: a command in the workspace with a time limit and an output of bounded size. The whole
// process group is killed at the end, so that no background process survives. The environment is a short list
// of variables, so that a model cannot read the keys that the server was started with. Isolation is in
// sandbox.ts.
import { type ChildProcess, spawn } from "node:child_process";
import type { AgentTool } from "../tool.ts";
import { Excerpt } from "./excerpt.ts";
import type { Sandbox } from "./sandbox.ts";
import { agentTool, Refused } from "./tool-arguments.ts";
import type { Workspace } from "./workspace.ts";

export interface ShellOptions {
  readonly sandbox: Sandbox;
  /** Characters of one result. */
  readonly maxCharacters: number;
  /** Default time limit of a command, in seconds. Default: 60. */
  readonly seconds?: number;
}

const maxSeconds = 600;
/** Environment variables that a command gets. */
const passedVariables = ["PATH", "HOME", "USER", "LANG", "LC_ALL", "TZ", "TMPDIR"];

export function shellTool(
  workspace: Workspace,
  { sandbox, maxCharacters, seconds = 60 }: ShellOptions,
): AgentTool {
  return agentTool(
    {
      name: "shell",
      description: `Run a command with bash at the top of the workspace. Gives its output and exit status; it is ended after ${seconds} seconds unless timeout says more. No input, no terminal${sandbox.kind === "none" ? "" : ", no network"}.`,
      fields: {
        command: { type: "string", description: "One line or several, for bash" },
        timeout: { type: "integer", description: `Seconds, 1 to ${maxSeconds}`, optional: true },
      },
    },
    ({ command, timeout = seconds }, signal) => {
      if (timeout < 1 || timeout > maxSeconds) throw new Refused(`timeout is 1 to ${maxSeconds} seconds.`);
      if (command.includes("\0")) throw new Refused("A command cannot have a NUL character.");
      const [program, ...rest] = sandbox.argv(workspace.root, command);
      const child = spawn(program!, rest, {
        cwd: workspace.root,
        env: environment(),
        stdio: ["ignore", "pipe", "pipe"],
        detached: true,
      });
      return outputOf(child, { seconds: timeout, maxCharacters, signal });
    },
  );
}

interface Bounds {
  readonly seconds: number;
  readonly maxCharacters: number;
  readonly signal: AbortSignal;
}

/** The result for the model. On abort, kills the group and rejects with the signal's reason. */
function outputOf(child: ChildProcess, { seconds, maxCharacters, signal }: Bounds): Promise<string> {
  const output = new Excerpt(maxCharacters);
  for (const stream of [child.stdout!, child.stderr!]) {
    stream.setEncoding("utf8");
    stream.on("data", (text: string) => output.push(text));
  }
  return new Promise((resolve, reject) => {
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      killGroup(child);
    }, seconds * 1000);
    const onAbort = () => killGroup(child);
    signal.addEventListener("abort", onAbort, { once: true });
    if (signal.aborted) onAbort();
    const cleanUp = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", onAbort);
    };
    // Background processes hold the pipes open: "close" is emitted once they are killed.
    child.once("exit", () => killGroup(child));
    child.once("error", (cause) => {
      cleanUp();
      reject(cause);
    });
    child.once("close", (code, killedBy) => {
      cleanUp();
      if (signal.aborted) return reject(signal.reason);
      const status = isLate
        ? `ended after ${seconds} seconds, the time limit`
        : killedBy
          ? `ended by ${killedBy}`
          : `exit status ${code}`;
      const text = output.text.trimEnd();
      resolve(text === "" ? `(no output, ${status})` : code === 0 ? text : `${text}\n(${status})`);
    });
  });
}

function killGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return;
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // The group has ended already.
  }
}

function environment(): NodeJS.ProcessEnv {
  const known = passedVariables.map((name) => [name, process.env[name]] as const);
  return { ...Object.fromEntries(known.filter(([, value]) => value !== undefined)), TERM: "dumb" };
}
