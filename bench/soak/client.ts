// One client of a soak, over a real socket: it asks, edits, hangs up, deletes and looks around as its seed says,
// checks what can be checked of each answer at once, and keeps some to be asked again on an idle server.
import { setTimeout as sleep } from "node:timers/promises";
import type { Backend } from "../../src/server/backend.ts";
import type { Random } from "../../test/support/random.ts";
import { seeded } from "../../test/support/random.ts";
import { Conversation } from "./conversation.ts";
import type { SoakResults } from "./results.ts";

/** Much longer than any answer may take here: who waits so long hangs. */
const hangMs = 60_000;
const lullEveryMs = 10_000;
const lullMs = 2500;

interface Answer {
  readonly text: string;
  readonly finish: string;
  readonly usage: { readonly prompt_tokens: number };
  readonly pocket: { readonly kept: number; readonly relocated: number; readonly computed: number };
}

export class Client {
  readonly #random: Random;
  readonly #conversation: Conversation;
  readonly #session: string | undefined;

  constructor(
    private readonly number: number,
    seed: number,
    private readonly url: string,
    private readonly backend: Backend,
    private readonly results: SoakResults,
  ) {
    this.#random = seeded(seed * 1009 + number);
    this.#conversation = new Conversation(this.#random);
    // Half go by name, an eighth share one name, and the others are known by what they say.
    const own = `soak-${number}`;
    this.#session = [own, undefined, own, undefined, own, undefined, own, "shared"][number % 8];
  }

  /** Until `over`; resolves when the last request has ended. */
  async run(over: AbortSignal): Promise<void> {
    while (!over.aborted) {
      await lull();
      const draw = this.#random();
      if (draw < 0.8) await this.#converse();
      else if (draw < 0.86) await this.#delete();
      else if (draw < 0.95) await this.#lookAround();
      else await this.#misbehave();
    }
  }

  async #converse(): Promise<void> {
    this.#conversation.turn();
    const messages = [...this.#conversation.messages];
    const draw = this.#random();
    const reuse = draw < 0.5 ? "prefix" : draw < 0.95 ? "suffix" : "none";
    const stream = this.#random() < 0.5;
    const pocket = {
      reuse,
      ...(this.#session && { session: this.#session }),
      ...(this.#random() < 0.2 && { repair: "assistant" }),
      ...(this.#random() < 0.05 && { forget: true }),
    };
    const maxTokens = 1 + Math.floor(this.#random() * 40);
    const leaves = this.#random() < 0.15 ? 1 + Math.floor(this.#random() * 150) : undefined;
    const tokens = reuse === "prefix" ? this.#promptOf(messages) : undefined;
    const body = { messages, max_tokens: maxTokens, temperature: 0, stream, pocket };
    const answer = await this.#ask("/v1/chat/completions", stream ? withUsage(body) : body, leaves);
    if (!answer) return;
    this.#conversation.answered(answer.text);
    const { kept, relocated, computed } = answer.pocket;
    if (kept + relocated + computed !== answer.usage.prompt_tokens)
      this.results.wrong(
        `the cache usage does not add up: ${JSON.stringify({ ...answer.pocket, ...answer.usage })}`,
      );
    if (reuse === "prefix" && relocated > 0) this.results.wrong(`prefix reuse relocated ${relocated} tokens`);
    this.results.cost(answer.pocket);
    // Other clients speak meanwhile; only a prompt that is still rendered to the same ids can be asked again.
    if (tokens && tokens.length === answer.usage.prompt_tokens && sameIds(tokens, this.#promptOf(messages)))
      this.results.keep({ tokens, maxTokens, text: answer.text, finish: answer.finish });
  }

  #promptOf(messages: Conversation["messages"]): readonly number[] {
    return this.backend.applyTemplate(messages).tokens;
  }

  async #delete(): Promise<void> {
    const ids = [`soak-${this.number}`, "shared", `never-${this.number}`];
    const id = ids[Math.floor(this.#random() * ids.length)]!;
    const twice = [this.#call("DELETE", `/v1/sessions/${id}`), this.#call("DELETE", `/v1/sessions/${id}`)];
    const statuses = (await Promise.all(twice)).map((response) => response?.status);
    this.results.add("deletes");
    // Between the two a session of that name may be created again, but only by a request for it.
    const allowed = id.startsWith("never") ? [404] : [200, 404];
    if (!statuses.every((status) => allowed.includes(status ?? 0)))
      this.results.wrong(`two deletes of ${id} were answered ${statuses}`);
  }

  async #lookAround(): Promise<void> {
    for (const path of ["/health", "/metrics", "/v1/sessions"]) {
      const status = (await this.#call("GET", path))?.status;
      if (status !== 200) this.results.wrong(`GET ${path} was answered ${status}`);
    }
  }

  /** What no client should send; each has one right answer. */
  async #misbehave(): Promise<void> {
    const user = (content: string) => [{ role: "user", content }];
    const bad: readonly (readonly [body: object, status: number])[] = [
      [{ messages: user("x ".repeat(3000)) }, 400],
      [{ messages: user("x"), max_tokens: -1 }, 400],
      [{ messages: [] }, 400],
      [{ messages: user("x"), pocket: { splice: [1, 2] } }, 400],
    ];
    const [body, wanted] = bad[Math.floor(this.#random() * bad.length)]!;
    const status = (await this.#call("POST", "/v1/chat/completions", body))?.status;
    // The queue may be full before the tokens are counted.
    if (status !== wanted && status !== 429) this.results.wrong(`a bad request was answered ${status}`);
    this.results.add("refused");
  }

  /** Undefined when it ended without an answer; the results then hold the error. */
  async #ask(path: string, body: object, leavesMs: number | undefined): Promise<Answer | undefined> {
    const response = await this.#call("POST", path, body, leavesMs);
    if (!response) return undefined;
    const text = response.body;
    if (response.status !== 200) {
      this.results.error(codeOf(text) ?? `status ${response.status}`);
      return undefined;
    }
    const answer = text.startsWith("{") ? wholeAnswer(text) : streamedAnswer(text);
    if (typeof answer === "string") this.results.error(answer);
    else this.results.add("answered");
    return typeof answer === "string" ? undefined : answer;
  }

  /** Undefined: the client hung up, as it meant to, or the server did not answer in time, which is noted. */
  async #call(
    method: string,
    path: string,
    body?: object,
    leavesMs?: number,
  ): Promise<{ readonly status: number; readonly body: string } | undefined> {
    const signal = AbortSignal.timeout(leavesMs ?? hangMs);
    const json = { headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
    this.results.add("requests");
    try {
      const response = await fetch(this.url + path, { method, signal, ...(body && json) });
      return { status: response.status, body: await response.text() };
    } catch (cause) {
      if (!signal.aborted) this.results.wrong(`${method} ${path}: ${(cause as Error).message}`);
      else if (leavesMs === undefined) this.results.wrong(`${method} ${path} hung`);
      else this.results.add("left");
      return undefined;
    }
  }
}

/** All clients are quiet for the same moment now and then: work for idle times begins, and is interrupted. */
async function lull(): Promise<void> {
  while (Date.now() % lullEveryMs < lullMs) await sleep(20);
}

function withUsage(body: object): object {
  return { ...body, stream_options: { include_usage: true } };
}

function wholeAnswer(text: string): Answer {
  const { choices, usage, pocket } = JSON.parse(text);
  return { text: choices[0].message.content, finish: choices[0].finish_reason, usage, pocket };
}

/** The code of the error where there is one in the stream. */
function streamedAnswer(body: string): Answer | string {
  const data = body.split("\n").filter((line) => line.startsWith("data: "));
  const chunks = data.slice(0, -1).map((line) => JSON.parse(line.slice(6)));
  if (data.at(-1) !== "data: [DONE]") return codeOf(data.at(-1)?.slice(6) ?? "") ?? "a stream without an end";
  const deltas = chunks.flatMap(({ choices }) => choices);
  const { usage, pocket } = chunks.at(-1);
  const finish = deltas.map((choice) => choice.finish_reason).find((reason) => reason !== null);
  return { text: deltas.map(({ delta }) => delta.content ?? "").join(""), finish, usage, pocket };
}

function codeOf(text: string): string | undefined {
  try {
    return JSON.parse(text).error.code;
  } catch {
    return undefined;
  }
}

function sameIds(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((id, index) => id === b[index]);
}
