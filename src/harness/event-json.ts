// The JSON form of events and reports: what the store keeps, what `--json` prints and what POST
// /v1/agent/runs streams. Some of its keys differ from the names in the code. Do not change them: stored
// runs, exports and clients have them.
import type { AnswerFinished } from "../context/collect-answer.ts";
import type { AgentEvent } from "./events.ts";
import type { Usage } from "./usage.ts";

type Names = Readonly<Record<string, string>>;

/** Field in the code, key in JSON. */
const finishNames: Names = { cacheUsage: "bill", draftTokens: "proposals" };
const usageNames: Names = { usage: "tally" };

export function eventToJson(event: AgentEvent): object {
  switch (event.type) {
    case "answer-finished":
      return { ...event, finish: withKeys(event.finish, finishNames) };
    case "compressor-finished":
      return { ...event, finishes: event.finishes.map((finish) => withKeys(finish, finishNames)) };
    case "run-finished":
      return withKeys(event, usageNames);
    default:
      return event;
  }
}

/** The inverse of `eventToJson`. Keys that have the names of the code already are accepted too. */
export function eventFromJson(json: object): AgentEvent {
  const event = json as AgentEvent;
  const finishOf = (finish: object) => withKeys(finish, inverse(finishNames)) as AnswerFinished;
  switch (event.type) {
    case "answer-finished":
      return { ...event, finish: finishOf(event.finish) };
    case "compressor-finished":
      return { ...event, finishes: event.finishes.map(finishOf) };
    case "run-finished":
      return withKeys(event, inverse(usageNames)) as AgentEvent;
    default:
      return event;
  }
}

/** `report`: a RunReport. */
export function reportToJson(report: { readonly usage: Usage }): object {
  return withKeys(report, usageNames);
}

/** The same values in the same order under other keys. */
function withKeys(value: object, names: Names): object {
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [names[name] ?? name, field]));
}

function inverse(names: Names): Names {
  return Object.fromEntries(Object.entries(names).map(([name, key]) => [key, name]));
}
