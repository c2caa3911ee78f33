// The Prometheus metrics of GET /metrics: prefix `pocket_`, then the names that vLLM uses where it has one. Prompt
// counters are sums of the cache usage that clients got; gauges are read when scraped. No metric has a session, a key
// or text of a message.
import { Counter, Gauge, Histogram, Registry } from "prom-client";
import type { CacheUsage, ChatEvent } from "../chat/chat.ts";
import { PocketError } from "../errors.ts";
import type { Backend, Counts, StepReport } from "./backend.ts";
import type { Admission } from "./middleware/admission.ts";

const latencySeconds = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300];
const gapSeconds = [0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.5, 1, 2.5, 5];
const batchSizes = [1, 2, 4, 8, 16, 32, 64];
const stepTokens = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];

export class Metrics {
  readonly registry = new Registry();
  readonly #queueSeconds = this.#histogram(
    "request_queue_time_seconds",
    "From arrival to admission",
    latencySeconds,
  );
  readonly #firstSeconds = this.#histogram(
    "time_to_first_token_seconds",
    "From arrival to the first text or call, queue time included",
    latencySeconds,
  );
  readonly #gapSeconds = this.#histogram(
    "inter_token_latency_seconds",
    "Between two pieces of one answer, text or call",
    gapSeconds,
  );
  readonly #answerSeconds = this.#histogram(
    "e2e_request_latency_seconds",
    "From arrival to the end of a complete answer",
    latencySeconds,
  );
  readonly #promptTokens = this.#counter("prompt_tokens_total", "Prompt tokens of complete answers");
  readonly #generationTokens = this.#counter("generation_tokens_total", "Tokens of complete answers");
  readonly #queries = this.#counter("prefix_cache_queries_total", "Prompt tokens looked for in the cache");
  readonly #hits = this.#counter("prefix_cache_hits_total", "Prompt tokens found there: kept and relocated");
  readonly #kept = this.#counter("kept_tokens_total", "Reused prompt tokens before the first edit");
  readonly #relocated = this.#counter("relocated_tokens_total", "Reused prompt tokens behind an edit");
  readonly #computed = this.#counter("computed_tokens_total", "Prompt tokens computed for their request");
  readonly #finished = this.#labelled("request_success_total", "Complete answers", "finished_reason");
  readonly #cancelled = this.#counter("requests_cancelled_total", "Requests whose client went away");
  readonly #failed = this.#labelled("requests_failed_total", "Requests that ended with an error", "code");
  readonly #steps = this.#counter("steps_total", "Passes of the model");
  readonly #stepTokens = this.#labelled("step_tokens_total", "Tokens run through the model", "kind");
  readonly #proposed = this.#counter("spec_decode_num_draft_tokens_total", "Draft tokens of prompt lookup");
  readonly #accepted = this.#counter(
    "spec_decode_num_accepted_tokens_total",
    "Draft tokens that were accepted",
  );
  readonly #stepSeconds = this.#histogram("step_seconds", "Time of one step", gapSeconds);
  readonly #batchSize = this.#histogram("step_batch_size", "Sequences in one step", batchSizes);
  readonly #iterationTokens = this.#histogram("iteration_tokens_total", "Tokens in one step", stepTokens);

  constructor(backend: Backend, admission: Admission) {
    backend.watchSteps((step) => this.#stepped(step));
    this.#gauge("num_requests_running", "Requests that are served", () => admission.counts.active);
    this.#gauge("num_requests_waiting", "Requests in the queue", () => admission.counts.queued);
    const rows: readonly (readonly [name: string, help: string, read: (counts: Counts) => number])[] = [
      ["cache_pages", "Pages of the pool", ({ pages }) => pages],
      ["cache_pages_free", "Pages without cells", ({ pagesFree }) => pagesFree],
      ["cache_pages_lent", "Pages with cells", ({ pagesUsed }) => pagesUsed],
      ["kv_cache_usage_perc", "Used part of the pages, 0 to 1", (c) => c.pagesUsed / c.pages],
      ["sessions", "Resident conversations", ({ sessions }) => sessions],
      ["stale_tokens", "Resident tokens that are approximate", ({ staleTokens }) => staleTokens],
      ["disk_bytes", "Bytes of keys and values in files", ({ diskBytes }) => diskBytes],
    ];
    for (const [name, help, read] of rows) this.#gauge(name, help, () => read(backend.counts()));
    const totals: readonly (readonly [name: string, help: string, read: (counts: Counts) => number])[] = [
      ["repaired_tokens_total", "Stale tokens recomputed while idle", (c) => c.repairedTokens],
      ["evictions_total", "Sessions evicted for their pages", ({ evictions }) => evictions],
      ["disk_hits_total", "Sessions restored from a file", ({ diskHits }) => diskHits],
      ["disk_writes_total", "Sessions written to a file", ({ diskWrites }) => diskWrites],
      ["num_preemptions_total", "Answers preempted for lack of pages", (c) => c.preemptions],
    ];
    for (const [name, help, read] of totals) this.#mirrored(name, help, () => read(backend.counts()));
  }

  /** Passes the events on unchanged and counts them. `arrivedAt` and the clock: milliseconds, monotonic. */
  async *metered(
    arrivedAt: number,
    events: AsyncIterable<ChatEvent>,
    now: () => number = () => performance.now(),
  ): AsyncGenerator<ChatEvent> {
    let last: number | undefined;
    let open = true;
    try {
      for await (const event of events) {
        if (isPiece(event)) {
          const at = now();
          if (last === undefined) this.#firstSeconds.observe((at - arrivedAt) / 1000);
          else this.#gapSeconds.observe((at - last) / 1000);
          last = at;
        } else if (event.type === "answer-finished") {
          open = false;
          this.#answered(event);
          this.#answerSeconds.observe((now() - arrivedAt) / 1000);
        }
        yield event;
      }
    } catch (cause) {
      open = false;
      this.failed(cause);
      throw cause;
    } finally {
      // The reader left before the answer ended.
      if (open) this.#cancelled.inc();
    }
  }

  /** A request that ended without an answer. */
  failed(cause: unknown): void {
    const code = cause instanceof PocketError ? cause.code : "INTERNAL";
    if (code === "CANCELLED") this.#cancelled.inc();
    else this.#failed.inc({ code });
  }

  entered(waitedMs: number): void {
    this.#queueSeconds.observe(waitedMs / 1000);
  }

  #answered({ cacheUsage, reason, promptTokens, completionTokens }: Finish): void {
    this.#finished.inc({ finished_reason: reason });
    this.#promptTokens.inc(promptTokens);
    this.#generationTokens.inc(completionTokens);
    this.#queries.inc(promptTokens);
    this.#hits.inc(cacheUsage.kept + cacheUsage.relocated);
    const parts: readonly [Counter, keyof CacheUsage & ("kept" | "relocated" | "computed")][] = [
      [this.#kept, "kept"],
      [this.#relocated, "relocated"],
      [this.#computed, "computed"],
    ];
    for (const [counter, part] of parts) counter.inc(cacheUsage[part]);
  }

  #stepped(step: StepReport): void {
    const { entries, promptTokens, decodeTokens, backgroundTokens, draftTokens, acceptedTokens, ms } = step;
    this.#steps.inc();
    this.#proposed.inc(draftTokens);
    this.#accepted.inc(acceptedTokens);
    this.#stepTokens.inc({ kind: "proposal" }, draftTokens);
    this.#stepTokens.inc({ kind: "prompt" }, promptTokens);
    this.#stepTokens.inc({ kind: "decode" }, decodeTokens);
    this.#stepTokens.inc({ kind: "background" }, backgroundTokens);
    this.#stepSeconds.observe(ms / 1000);
    this.#batchSize.observe(entries);
    this.#iterationTokens.observe(promptTokens + decodeTokens + backgroundTokens + draftTokens);
  }

  #counter(name: string, help: string): Counter {
    return new Counter({ name: `pocket_${name}`, help, registers: [this.registry] });
  }

  #labelled<Label extends string>(name: string, help: string, label: Label): Counter<Label> {
    return new Counter({ name: `pocket_${name}`, help, labelNames: [label], registers: [this.registry] });
  }

  #histogram(name: string, help: string, buckets: number[]): Histogram {
    return new Histogram({ name: `pocket_${name}`, help, buckets, registers: [this.registry] });
  }

  #gauge(name: string, help: string, read: () => number): void {
    new Gauge({
      name: `pocket_${name}`,
      help,
      registers: [this.registry],
      collect() {
        this.set(read());
      },
    });
  }

  /** A counter whose value is kept elsewhere and read when scraped. */
  #mirrored(name: string, help: string, read: () => number): void {
    new Counter({
      name: `pocket_${name}`,
      help,
      registers: [this.registry],
      collect() {
        this.reset();
        this.inc(read());
      },
    });
  }
}

type Finish = Extract<ChatEvent, { type: "answer-finished" }>;

/** Events with output for the client; a call counts from its name on. */
function isPiece({ type }: ChatEvent): boolean {
  return type === "text-delta" || type === "tool-call-start" || type === "tool-call-delta";
}
