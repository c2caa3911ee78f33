// The end of a child process, however it is asked for one.
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";

/** Has it asked to end, and makes it end five seconds later; safe to repeat, also where it never started. */
export async function endChild(child: ChildProcess, ask: () => void): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null || child.pid === undefined) return;
  const gone = once(child, "exit");
  ask();
  const timer = setTimeout(() => child.kill("SIGKILL"), 5000);
  await gone;
  clearTimeout(timer);
}
