// What keeps a shell command off the network: bubblewrap where it is installed, which also makes everything but
// the workspace read-only, else namespaces by unshare, else nothing and a sentence that says so. Which of them
// works is found by trying it, because containers often forbid what they have.
import { spawnSync } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

export type SandboxKind = "bubblewrap" | "unshare" | "none";

export interface Sandbox {
  readonly kind: SandboxKind;
  /** Program and arguments that run `command` by bash in the folder. */
  argv(folder: string, command: string): readonly string[];
  /** For people, once; undefined where the network is off. */
  readonly warning?: string;
}

/** The strongest one that works here. */
export function findSandbox(kinds: readonly SandboxKind[] = ["bubblewrap", "unshare", "none"]): Sandbox {
  return kinds.map((kind) => makers[kind]()).find((sandbox) => sandbox !== undefined) ?? makers.none();
}

/** Where a program is, looked for on the PATH; null where it is not. */
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
    // With a process namespace even what leaves the process group dies with the command.
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
