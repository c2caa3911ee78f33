// KV allocation for running decodes. A decode needs one cell for its next token. If the pool has no free page, the
// request is preempted: it keeps its cells and asks again before every step, oldest request first. If all requests
// are preempted and nothing else can run, the youngest releases its cells and is recomputed later from its known
// tokens, so no token is lost or reported twice. The oldest request is never recomputed, so the engine always
// makes progress.
import { PocketError, pocketError } from "../errors.ts";
import type { Runner, RunnerInfo } from "./addon.ts";
import type { KvFiles } from "./kv-files.ts";
import type { StepStats } from "./step-stats.ts";
import type { Task } from "./task.ts";

/** What allocation needs of the engine; the step loop has it. */
export interface AllocationContext {
  readonly runner: Runner;
  readonly info: RunnerInfo;
  readonly files: Pick<KvFiles, "pending">;
  readonly stats: Pick<StepStats, "counts">;
}

/**
 * Allocates the next cell of every preempted task, oldest first. A task for which there is no page stays preempted;
 * any other refusal is recorded in `Task.dropped`.
 */
export function allocateAll(context: AllocationContext, tasks: readonly Task[]): void {
  let refused = false;
  for (const task of tasks) {
    if (task.holdsCells && !allocate(context, task)) refused = true;
  }
  // A task that is recomputed needs many pages: tasks that need one page come first.
  for (const task of tasks) {
    if (refused) return;
    if (task.preempted && !task.dropped) refused = !allocate(context, task);
  }
}

/** A task that has to end. `final`: its cells are gone and the client cannot continue the answer. */
export interface FailedTask {
  readonly task: Task;
  readonly reason: Error;
  readonly final: boolean;
}

/**
 * For when every task is preempted and no pending file will free a page. Releases the cells of the youngest task, or
 * returns a task that has to end where that cannot help. `tasks`: at least one, oldest first.
 */
export function resolveDeadlock(context: AllocationContext, tasks: readonly Task[]): FailedTask | undefined {
  const holders = tasks.filter((task) => task.holdsCells);
  const youngest = holders.at(-1);
  if (youngest && holders.length > 1) {
    recomputeLater(context, youngest);
    return undefined;
  }
  // Idle sequences fill the rest of the pool: the caller may release some and continue the answer.
  if (youngest) {
    const reason = pocketError("CACHE_FULL", 0, context.info.pageSize, 1);
    return { task: youngest, reason, final: false };
  }
  const oldest = tasks[0]!;
  const reason = pocketError("CACHE_TOO_SMALL", oldest.length, context.info.pages * context.info.pageSize);
  return { task: oldest, reason, final: true };
}

/** False if there is no page. Any other refusal is recorded in the task and returns true. */
function allocate(context: AllocationContext, task: Task): boolean {
  for (;;) {
    try {
      context.runner.splice(task.sequence.id, [task.nextCells]);
      task.allocated();
      return true;
    } catch (cause) {
      if (!(cause instanceof PocketError && cause.code === "CACHE_FULL")) {
        task.dropped ??= cause as Error;
        return true;
      }
    }
    // Evict one sequence at a time: one that is being saved frees its pages only when its file is written.
    if (context.files.pending || !task.job.evictIdle?.()) break;
  }
  if (!task.waiting) context.stats.counts.preemptions++;
  task.waiting = true;
  return false;
}

function recomputeLater(context: AllocationContext, task: Task): void {
  const { sequence } = task;
  const { tokens } = context.runner.inspect(sequence.id);
  context.runner.splice(sequence.id, [{ start: 0, end: tokens.length, count: 0 }]);
  sequence.record(0);
  task.recompute(tokens);
}
