// Pages for answers under way. An answer whose next token finds no page must not fail while others will give
// pages back: it is parked with its cells and asks again before every step, the oldest first. When all are
// parked and nothing else runs, the youngest gives its cells up and is read again later; its tokens are known,
// so none is lost and none is said twice. The oldest never gives up, so something always moves on.
import { PocketError, pocketError } from "../errors.ts";
import type { Loop } from "./loop.ts";
import type { Task } from "./task.ts";

/** Opens the next cell of every answer that finds a page for it. Others stay parked; see `Task.dropped` as well. */
export function allocateAll(loop: Loop, tasks: readonly Task[]): void {
  let refused = false;
  for (const task of tasks) {
    if (task.holdsCells && !seat(loop, task)) refused = true;
  }
  // Who gave up its cells needs many pages: not before those who need one.
  for (const task of tasks) {
    if (refused) return;
    if (task.preempted && !task.dropped) refused = !seat(loop, task);
  }
}

/** A task that has to end. `final`: nobody can go on with its answer. */
export interface FailedTask {
  readonly task: Task;
  readonly reason: Error;
  readonly final: boolean;
}

/**
 * Every task is parked and no page will come by itself. Somebody gives its cells up, or, where that cannot help,
 * a task is named that has to end. `tasks` oldest first, at least one.
 */
export function resolveDeadlock(loop: Loop, tasks: readonly Task[]): FailedTask | undefined {
  const holders = tasks.filter((task) => task.holdsCells);
  const youngest = holders.at(-1);
  if (youngest && holders.length > 1) {
    giveUp(loop, youngest);
    return undefined;
  }
  // What still fills the pool is not the engine's: whoever holds it may let go of it and go on with the answer.
  if (youngest) {
    const reason = pocketError("CACHE_FULL", 0, loop.info.pageSize, 1);
    return { task: youngest, reason, final: false };
  }
  const oldest = tasks[0]!;
  const reason = pocketError("CACHE_TOO_SMALL", oldest.length, loop.info.pages * loop.info.pageSize);
  return { task: oldest, reason, final: true };
}

/** True unless there is no room. Any other refusal is recorded in the task. */
function seat(loop: Loop, task: Task): boolean {
  for (;;) {
    try {
      loop.runner.splice(task.sequence.id, [task.nextCells]);
      task.allocated();
      return true;
    } catch (cause) {
      if (!(cause instanceof PocketError && cause.code === "CACHE_FULL")) {
        task.dropped ??= cause as Error;
        return true;
      }
    }
    // One at a time: pages of an idle sequence that is being written to a file come when it is written.
    if (loop.files.any || !task.job.evictIdle?.()) break;
  }
  if (!task.waiting) loop.stats.counts.preemptions++;
  task.waiting = true;
  return false;
}

function giveUp(loop: Loop, task: Task): void {
  const { sequence } = task;
  const { tokens } = loop.runner.inspect(sequence.id);
  loop.runner.splice(sequence.id, [{ start: 0, end: tokens.length, count: 0 }]);
  sequence.record(0);
  task.recompute(tokens);
}
