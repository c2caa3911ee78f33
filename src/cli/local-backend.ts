// The Backend of a local model over chat and engine, with the counts of both. It opens and closes nothing.
import type { Manifest } from "../../models/manifest.ts";
import type { Engine, EngineStats } from "../engine/engine.ts";
import type { Backend, StepReport } from "../server/backend.ts";
import type { LocalChat } from "../session/local-chat.ts";
import type { ChatTemplate } from "../text/template.ts";
import type { Tokenizer } from "../text/tokenizer.ts";

export interface LocalParts {
  readonly manifest: Manifest;
  /** Seconds since 1970. */
  readonly created: number;
  readonly engine: Engine;
  readonly tokenizer: Tokenizer;
  readonly template: ChatTemplate;
  readonly chat: LocalChat;
  readonly steps: StepReports;
}

/** Passes step reports on to watchers. Made before the engine, which reports to it. */
export class StepReports {
  readonly #watchers: ((step: StepReport) => void)[] = [];

  watch(watcher: (step: StepReport) => void): void {
    this.#watchers.push(watcher);
  }

  report(step: StepReport): void {
    for (const watcher of this.#watchers) watcher(step);
  }
}

export function localBackend(parts: LocalParts): Backend {
  const { manifest, created, engine, tokenizer, template, chat, steps } = parts;
  return {
    model: {
      id: manifest.id,
      created,
      context: engine.context,
      vocab: tokenizer.size,
      family: manifest.family,
      takesTools: template.takesTools,
    },
    chat: (request) => chat.chat(request),
    complete: (request) => chat.complete(request),
    tokenize(text, { addSpecial, parseSpecial }) {
      if (parseSpecial) return chat.tokenize(text, { addSpecial });
      const ids = Array.from(tokenizer.encodeContent(text));
      return addSpecial && tokenizer.bos !== undefined ? [tokenizer.bos, ...ids] : ids;
    },
    detokenize: (tokens) => chat.detokenize(tokens),
    applyTemplate: (messages, tools) => chat.applyTemplate(messages, tools),
    sessions: (tenant) => chat.list(tenant),
    session: (id, tenant) => chat.inspect(id, tenant),
    deleteSession: (id, tenant) => chat.delete(id, tenant),
    health() {
      const { broken } = engine;
      const { isa, kvType, threads, runtimeVersion, device } = engine.info;
      return {
        ...(broken && { broken: { message: broken.message, since: broken.since.getTime() } }),
        engine: { ...withFormerKeys(engine.stats()), device, isa, kvType, threads, runtimeVersion },
      };
    },
    counts() {
      const { pages, pagesFree, pagesUsed, preemptions } = engine.stats();
      const sessions = chat.stats();
      return { pages, pagesFree, pagesUsed, ...sessions, preemptions: sessions.preemptions + preemptions };
    },
    watchSteps: (watcher) => steps.watch(watcher),
  };
}

/** Adds the former names of four counters, which clients of /health may read. */
function withFormerKeys(stats: EngineStats): Readonly<Record<string, number>> {
  const { pagesUsed, preempted, preemptions, draftTokens } = stats;
  return {
    ...stats,
    pagesLent: pagesUsed,
    parked: preempted,
    parkings: preemptions,
    proposedTokens: draftTokens,
  };
}
