// The report of a run, made from its events, live or stored: costs per turn and per compaction, and sums.
// `prefixOnly` is what reuse of the common prefix alone would have computed: everything after the first edit,
// relocated + computed.
import type { Database } from "better-sqlite3";
import type { AnswerFinished } from "../context/collect-answer.ts";
import { exportRun } from "../context/export.ts";
import { eventFromJson } from "./event-json.ts";
import type { AgentEvent, Outcome } from "./events.ts";
import { addCall, emptyUsage, type Usage } from "./usage.ts";

export interface TurnCost {
  readonly turn: number;
  /** Prompt tokens; kept + relocated + computed = input. */
  readonly input: number;
  readonly kept: number;
  readonly relocated: number;
  readonly computed: number;
  /** Tokens that would have been computed if only the common prefix were reused. */
  readonly prefixOnly: number;
  readonly output: number;
  readonly ms: number;
}

export interface CompactionCost {
  readonly tag: string;
  readonly memory: string;
  readonly replaced: readonly string[];
  readonly tokensBefore: number;
  readonly tokensAfter: number;
  /** Prompt tokens that the calls of the compressor computed, and their milliseconds. */
  readonly computed: number;
  readonly ms: number;
}

/**
 * `outcome`: of the last attempt. stopped: the run can be resumed. open: it is running, or its process died.
 */
export interface RunReport {
  readonly outcome: Outcome | "stopped" | "open";
  readonly answer?: string;
  /** Message of the error that stopped the run. */
  readonly why?: string;
  readonly turns: readonly TurnCost[];
  readonly compactions: readonly CompactionCost[];
  readonly expands: number;
  /** Cost of the compressor's last task, also if nothing was compacted. */
  readonly compression: Pick<CompactionCost, "computed" | "ms">;
  readonly usage: Usage;
  /** Prompt tokens computed in all calls, and those that prefix reuse alone would have computed. */
  readonly computed: number;
  readonly prefixOnly: number;
}

export const emptyReport: RunReport = {
  outcome: "open",
  turns: [],
  compactions: [],
  expands: 0,
  compression: { computed: 0, ms: 0 },
  usage: emptyUsage,
  computed: 0,
  prefixOnly: 0,
};

/** The report with one more event. */
export function addEvent(report: RunReport, event: AgentEvent): RunReport {
  switch (event.type) {
    case "turn-started": {
      const { answer: _, why: __, ...rest } = report;
      return { ...rest, outcome: "open" };
    }
    case "answer-finished": {
      const turns = [...report.turns, turnCost(report.turns.length + 1, event.finish)];
      return withSums({ ...report, turns, usage: addCall(report.usage, "agent", event.finish) });
    }
    case "compressor-finished": {
      const sum = (pick: (finish: AnswerFinished) => number) =>
        event.finishes.reduce((total, finish) => total + pick(finish), 0);
      const compression = {
        computed: sum(({ cacheUsage }) => cacheUsage.computed),
        ms: sum(({ promptMs, generateMs }) => promptMs + generateMs),
      };
      const add = (usage: Usage, finish: AnswerFinished) => addCall(usage, "compressor", finish);
      return withSums({ ...report, compression, usage: event.finishes.reduce(add, report.usage) });
    }
    case "block-compacted": {
      const { type: _, ...compaction } = event;
      return { ...report, compactions: [...report.compactions, { ...compaction, ...report.compression }] };
    }
    case "block-expanded":
      return { ...report, expands: report.expands + 1 };
    case "run-finished":
      return { ...report, outcome: event.outcome, answer: event.answer };
    case "run-stopped":
      return { ...report, outcome: "stopped", why: event.message };
    default:
      return report;
  }
}

/** The report of a stored run. Throws RUN_NOT_FOUND. */
export function readReport(database: Database, run: string): RunReport {
  let report = emptyReport;
  for (const event of storedEvents(database, run)) report = addEvent(report, event);
  return report;
}

/** The events of a stored run, in order. Throws RUN_NOT_FOUND. */
export function* storedEvents(database: Database, run: string): Generator<AgentEvent, void, undefined> {
  for (const line of exportRun(database, run)) {
    if (!line.startsWith('{"type":"event"')) continue;
    const { body } = JSON.parse(line) as { readonly body: object };
    yield eventFromJson(body);
  }
}

function withSums(report: RunReport): RunReport {
  const { agent, compressor } = report.usage;
  const computed = agent.computed + compressor.computed;
  return { ...report, computed, prefixOnly: computed + agent.relocated + compressor.relocated };
}

function turnCost(
  turn: number,
  { promptTokens, completionTokens, cacheUsage, promptMs, generateMs }: AnswerFinished,
) {
  const { kept, relocated, computed } = cacheUsage;
  const prefixOnly = relocated + computed;
  const ms = promptMs + generateMs;
  return { turn, input: promptTokens, kept, relocated, computed, prefixOnly, output: completionTokens, ms };
}
