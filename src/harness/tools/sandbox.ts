// Isolates shell commands: bubblewrap if it is installed (no network, everything but the workspace
// read-only), otherwise namespaces by unshare (no network), otherwise nothing and a warning. Each is tried
// before it is used, because containers often forbid what is installed.
import { spawnSync } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

export type SandboxKind = "bubblewrap" | "unshare" | "none";

export interface Sandbox {
  readonly kind: SandboxKind;
  /** Program and arguments that run `command` with bash. `folder`: absolute; stays writable. */
  argv(folder: string, command: string): readonly string[];
  /** For the user. Undefined if commands have no network. */
  readonly warning?: string;
}

/** The strongest of `kinds` that works on this machine; "none" if none does. */
export function findSandbox(kinds: readonly SandboxKind[] = ["bubblewrap", "unshare", "none"]): Sandbox {
  return kinds.map((kind) => makers[kind]()).find((sandbox) => sandbox !== undefined) ?? makers.none();
}

/** Path of a program on the PATH; null if it is not installed. */
export function installed(name: string): string | null {
  for (const folder of (process.env.PATH ?? "").split(delimiter).filter(Boolean)) {
    const file = join(folder, name);
    try {
      accessSync(file, constants.X_OK);
      return file;
    } catch {}
  }
  return null;
}

const makers = {
  bubblewrap(): Sandbox | undefined {
    const program = installed("bwrap");
    if (!program) return undefined;
    const argv = (folder: string, command: string) => [
      program,
      ...["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"],
      ...["--bind", folder, folder, "--chdir", folder],
      ...["--unshare-net", "--unshare-pid", "--die-with-parent", "--new-session"],
      ...bash(command),
    ];
    return works(argv("/tmp", "true")) ? { kind: "bubblewrap", argv } : undefined;
  },
  unshare(): Sandbox | undefined {
    const program = installed("unshare");
    if (!program) return undefined;
    // In a process namespace, processes that leave the process group end with the command too.
    const variants = [
      ["--pid", "--fork", "--kill-child", "--mount-proc"],
      ["--pid", "--fork", "--kill-child"],
      [],
    ];
    for (const more of variants) {
      const argv = (_folder: string, command: string) => [
        program,
        ...["--user", "--map-current-user", "--net"],
        ...more,
        ...bash(command),
      ];
      if (works(argv("/", "true"))) return { kind: "unshare", argv };
    }
    return undefined;
  },
  none(): Sandbox {
    return {
      kind: "none",
      argv: (_folder, command) => bash(command),
      warning:
        "neither bubblewrap nor unshare works here, so shell commands of the agent can use the network and write outside of the workspace",
    };
  },
};

function bash(command: string): string[] {
  return ["/bin/bash", "-c", command];
}

function works([program, ...rest]: readonly string[]): boolean {
  const { status } = spawnSync(program!, rest, { stdio: "ignore", timeout: 5000 });
  return status === 0;
}
