// Shows an agent run from its events: a line per exchange with its cache usage and a bar for the window, a line per
// compaction and expansion, the answer, the totals. On a terminal the line of the running turn is rewritten.

import type { ToolCall } from "../chat/chat.ts";
import { formatTokens } from "../context/catalog.ts";
import type { AgentEvent } from "../harness/events.ts";
import { addEvent, emptyReport, type RunReport } from "../harness/report.ts";

export interface ViewSink {
  readonly isTTY?: boolean;
  readonly columns?: number;
  write(text: string): unknown;
}

export class RunView {
  #report: RunReport;
  #calls: ToolCall[] = [];
  #text = "";
  #used = 0;
  #isDrawn = false;
  /** The turn whose line is written. */
  #shown = 0;

  constructor(
    private readonly sink: ViewSink,
    /** The window in tokens. */
    private readonly window: number,
    /** Of what the run has done before. */
    report: RunReport = emptyReport,
  ) {
    this.#report = report;
  }

  get report(): RunReport {
    return this.#report;
  }

  show(event: AgentEvent): void {
    this.#report = addEvent(this.#report, event);
    switch (event.type) {
      case "turn-started":
        this.#used = event.used;
        this.#calls = [];
        this.#text = "";
        this.#draw("asking");
        break;
      case "text-delta":
        this.#text += event.text;
        this.#draw(oneLine(this.#text));
        break;
      case "tool-called":
        this.#calls.push(event.call);
        this.#draw(callLine(event.call));
        break;
      case "answer-dropped":
        this.#line(`     answer ${event.why}; asked again`);
        break;
      case "compressor-finished":
        this.#draw("compressed");
        break;
      case "block-compacted":
        this.#line(this.#compaction());
        break;
      case "block-expanded":
        this.#line(
          `     expanded ${event.tag} as ${event.copies.join(", ")}: +${formatTokens(event.tokens)} tokens`,
        );
        break;
      case "block-appended":
        if (event.kind === "exchange") this.#exchange(event.block);
        break;
      case "run-finished":
        this.#end(event);
        break;
      case "run-stopped":
        this.#line(`stopped: ${event.message}`);
        break;
    }
  }

  #exchange(block: string): void {
    const turn = this.#report.turns.at(-1);
    // An answer that came in a call is an exchange of its own, and no turn.
    if (!turn || turn.turn === this.#shown) return;
    this.#shown = turn.turn;
    const { input, kept, relocated, computed, ms } = turn;
    const what = this.#calls.length > 0 ? this.#calls.map(callLine).join("; ") : oneLine(this.#text);
    const cacheUsage = `kept ${formatTokens(kept)}, relocated ${formatTokens(relocated)}, computed ${formatTokens(computed)}`;
    this.#line(
      `${bar(input / this.window)} ${String(turn.turn).padStart(3)} ${block} ${cut(what, 60)}  (in ${formatTokens(input)}: ${cacheUsage}; ${seconds(ms)})`,
    );
  }

  #compaction(): string {
    const { replaced, tag, memory, tokensBefore, tokensAfter, computed, ms } =
      this.#report.compactions.at(-1)!;
    const range = replaced.length === 1 ? replaced[0] : `${replaced[0]}…${replaced.at(-1)}`;
    const cacheUsage = `−${formatTokens(tokensBefore - tokensAfter)} tokens, recomputed ${formatTokens(computed)}, ${seconds(ms)}`;
    return `     compacted ${range} into ${memory} (${tag}): ${cacheUsage}`;
  }

  #end({ outcome, answer }: Extract<AgentEvent, { type: "run-finished" }>): void {
    const { turns, compactions, expands, usage, computed, prefixOnly } = this.#report;
    this.#line("");
    this.#line(plain(answer) || "(no answer)");
    this.#line("");
    this.#line(
      `${outcome}: ${turns.length} turns, ${compactions.length} compactions, ${expands} expands; peak input ${formatTokens(usage.peakInput)} tokens; computed ${formatTokens(computed)} prompt tokens, prefix reuse alone ${formatTokens(prefixOnly)}`,
    );
  }

  /** Writes a whole line and clears the progress line. */
  #line(text: string): void {
    this.sink.write(`${this.#isDrawn ? "\r\u001b[K" : ""}${text}\n`);
    this.#isDrawn = false;
  }

  #draw(what: string): void {
    if (this.sink.isTTY !== true) return;
    const text = `${bar(this.#used / this.window)} ${formatTokens(this.#used)} of ${formatTokens(this.window)}  ${what}`;
    this.sink.write(`\r\u001b[K${cut(text, (this.sink.columns ?? 80) - 1)}`);
    this.#isDrawn = true;
  }
}

/** Ten cells and a percentage. */
export function bar(fraction: number): string {
  const cells = Math.max(0, Math.min(10, Math.round(fraction * 10)));
  return `[${"█".repeat(cells)}${"·".repeat(10 - cells)}] ${String(Math.round(fraction * 100)).padStart(3)} %`;
}

/** Without what could steer a terminal; lines and tabs stay. */
export function plain(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: that is what is taken out
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, "").trim();
}

export function seconds(ms: number): string {
  return `${(ms / 1000).toFixed(1)} s`;
}

function callLine({ name, arguments: json }: ToolCall): string {
  return oneLine(`${name} ${json}`);
}

/** Control characters of a model or a file must not steer the terminal. */
function oneLine(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: that is what is taken out
  return text.replace(/[\u0000-\u001f\u007f-\u009f\s]+/g, " ").trim();
}

function cut(text: string, most: number): string {
  const characters = Array.from(text);
  return characters.length <= most ? text : `${characters.slice(0, Math.max(0, most - 1)).join("")}…`;
}
