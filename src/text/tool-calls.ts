// Tool calls in an answer's text while it comes: Qwen's `<tool_call>{"name": …, "arguments": …}</tool_call>`
// (the format of Hermes), and what small models write instead when tools were offered: the object in a fence, in
// `<tools>`, or bare at the start. What is no call stays text. Pieces are of any size, and what comes out does
// not depend on them. It knows no ids, no events and no tokens.

import { JsonExtent } from "./json-extent.ts";
import { parseToolCall, readToolCallHeader } from "./tool-call-header.ts";

/** Offsets are in the answer's text: [start, end) is where a piece of content stood. */
export type AnswerPart =
  | { readonly kind: "text"; readonly text: string; readonly start: number; readonly end: number }
  | { readonly kind: "call-start"; readonly index: number; readonly name: string }
  | { readonly kind: "call-delta"; readonly index: number; readonly arguments: string }
  | { readonly kind: "call-end"; readonly index: number; readonly name: string; readonly arguments: string };

export interface ToolCallOptions {
  /** Names of the tools offered. */
  readonly names: readonly string[];
  /** Those of them whose calls count only in `<tool_call>`: elsewhere no grammar has seen to their arguments. */
  readonly taggedOnly?: readonly string[];
  /** Calls after which the answer is `full`. Default: no limit. */
  readonly maxCalls?: number;
}

interface Frame {
  /** Behind it the object begins, perhaps after white space. */
  readonly opening: RegExp;
  readonly closing: string;
  /** The tag alone says that a call is meant, whatever its name. */
  readonly certain: boolean;
}

const tag: Frame = { opening: /^<tool_call>\s*/, closing: "</tool_call>", certain: true };
const tools: Frame = { opening: /^<tools>\s*/, closing: "</tools>", certain: false };
const fence: Frame = {
  opening: /^```(?:json|tool_call|tool_code|xml)?[ \t]*\n\s*/,
  closing: "```",
  certain: false,
};
const bare: Frame = { opening: /^/, closing: "", certain: false };
const openers = ["<tool_call>", "<tools>", "```"] as const;
const frames = { "<tool_call>": tag, "<tools>": tools, "```": fence };
const fenceBeginnings = ["```json", "```tool_call", "```tool_code", "```xml"];

/** tail: behind the arguments, still in the object; rest: its other keys; behind: in the frame, or out of it. */
type State = "text" | "head" | "arguments" | "tail" | "rest" | "behind";

export class ToolCalls {
  /** Text that is not decided yet, and where it stands in the answer. */
  #held = "";
  #at = 0;
  #state: State = "text";
  #frame = bare;
  /** In `#held`, when the state is head: where the object begins, and how far it was looked at. */
  #object = 0;
  #seen = 0;
  #extent = new JsonExtent();
  /** Characters in front of which no opener is looked for: one was refused there. */
  #refused = 0;
  #begun = 0;
  #ended = 0;
  #name = "";
  #arguments = "";
  #onlyCallsYet = true;
  #calledLast = false;
  #full = false;
  #parts: AnswerPart[] = [];

  constructor(private readonly options: ToolCallOptions) {}

  /** As many calls as wanted are complete: nothing more will come. */
  get full(): boolean {
    return this.#full;
  }

  /** Calls whose arguments are whole, and whether the answer breaks off in one. */
  get complete(): number {
    return this.#ended;
  }

  get broken(): boolean {
    return this.#begun > this.#ended;
  }

  /** What is certain now. */
  push(text: string): AnswerPart[] {
    if (this.#full) return [];
    this.#held += text;
    while (this.#advance(false));
    return this.#parts.splice(0);
  }

  /** What was held back, when no more text comes. */
  flush(): AnswerPart[] {
    if (this.#full) return [];
    while (this.#advance(true));
    // A call that never came to its arguments is text.
    if (this.#state === "head") this.#content(this.#held.length);
    // White space behind a call says nothing; behind text it is text.
    if (this.#state === "text" && (this.#held.trim() !== "" || !this.#calledLast))
      this.#content(this.#held.length);
    this.#held = "";
    return this.#parts.splice(0);
  }

  /** One move of the machine; false: it needs more text. `last`: there will be none. */
  #advance(last: boolean): boolean {
    if (this.#full) return false;
    if (this.#state === "text") return this.#readText(last);
    if (this.#state === "head") return this.#readHead();
    if (this.#state === "arguments") return this.#readArguments();
    if (this.#state === "tail") return this.#readTail();
    return this.#state === "rest" ? this.#readRest() : this.#readBehind(last);
  }

  #readText(last: boolean): boolean {
    const found = this.#opener(last);
    if (found === undefined) {
      if (!last) this.#content(this.#certainLength());
      return false;
    }
    const { at, frame, length } = found;
    // White space in front of a call belongs to the call; else it is content in front of what follows.
    this.#content(this.#held.slice(0, at).trimEnd().length);
    const space = this.#held.length - this.#held.trimStart().length;
    this.#frame = frame;
    this.#look(space + length);
    return true;
  }

  /** The first opener that is complete and not refused, once nothing in front of it can become one. */
  #opener(
    last: boolean,
  ): { readonly at: number; readonly frame: Frame; readonly length: number } | undefined {
    for (let at = this.#refused; at < this.#held.length; at++) {
      const rest = this.#held.slice(at, at + 64);
      const opener = openers.find((candidate) => rest.startsWith(candidate));
      if (opener) {
        const frame = frames[opener];
        const length = frame.opening.exec(this.#held.slice(at))?.[0].length ?? 0;
        const next = this.#held[at + length];
        if (length > 0 && next === "{") return { at, frame, length };
        if (!last && this.#mayOpen(this.#held.slice(at), frame)) return undefined;
        this.#refused = at + 1;
      } else if (this.#held[at] === "{" && this.#onlyCallsYet && this.#held.slice(0, at).trim() === "") {
        return { at, frame: bare, length: 0 };
      } else if (!last && openers.some((candidate) => candidate.startsWith(rest))) {
        return undefined;
      }
    }
    return undefined;
  }

  /** Whether more text may still make `rest` the opening of an object in this frame. */
  #mayOpen(rest: string, frame: Frame): boolean {
    if (frame.opening.exec(rest)?.[0].length === rest.length) return true;
    return (
      frame === fence &&
      (fenceBeginnings.some((word) => word.startsWith(rest)) ||
        (/^```[a-z_]*[ \t]*$/.test(rest) && fence.opening.test(`${rest}\n`)))
    );
  }

  /** Of the held text, what can be no part of a call and of no white space in front of one. */
  #certainLength(): number {
    let at = this.#refused;
    for (; at < this.#held.length; at++) {
      const rest = this.#held.slice(at, at + 64);
      const opener = openers.some((candidate) => rest.startsWith(candidate) || candidate.startsWith(rest));
      if (opener) break;
    }
    return this.#held.slice(0, at).trimEnd().length;
  }

  #readHead(): boolean {
    const end = this.#extent.close(this.#held, this.#seen, 0);
    const object = this.#held.slice(this.#object, end < 0 ? undefined : end);
    const found = readToolCallHeader(object, (name, partly) => this.#offers(name, partly));
    if (found === "none") return this.#refuse();
    if (found !== "open") {
      this.#extent = new JsonExtent();
      // The extent stands in front of the arguments, one bracket deep.
      this.#extent.close(object.slice(0, found.argumentsAt), 0, 0);
      this.#start(found.name);
      this.#drop(this.#object + found.argumentsAt);
      this.#state = "arguments";
      return true;
    }
    this.#seen = this.#held.length;
    if (end < 0) return false;
    const call = parseToolCall(object);
    if (!call || !this.#offers(call.name, false)) return this.#refuse();
    this.#start(call.name);
    this.#delta(call.arguments);
    this.#end();
    this.#drop(end);
    this.#state = "behind";
    return true;
  }

  /** An answer may call what was not offered in so many words; whoever runs it says so. */
  #offers(name: string, partly: boolean): boolean {
    if (this.#frame.certain) return name !== "" || partly;
    const { names, taggedOnly = [] } = this.options;
    const loose = names.filter((offered) => !taggedOnly.includes(offered));
    return loose.some((offered) => (partly ? offered.startsWith(name) : offered === name));
  }

  #refuse(): true {
    const shown = this.#held.length - this.#held.trimStart().length;
    this.#refused = shown + 1;
    this.#state = "text";
    if (this.#frame === bare) this.#onlyCallsYet = false;
    return true;
  }

  #readArguments(): boolean {
    const end = this.#extent.close(this.#held, 0, 1);
    const length = end < 0 ? this.#held.length : end;
    this.#delta(this.#held.slice(0, length));
    this.#drop(length);
    if (end < 0) return false;
    this.#end();
    this.#state = "tail";
    return true;
  }

  /** A missing bracket is forgiven. */
  #readTail(): boolean {
    const next = this.#held.trimStart()[0];
    if (next === undefined) return false;
    this.#state = next === "}" || next === "," ? "rest" : "behind";
    return true;
  }

  #readRest(): boolean {
    const end = this.#extent.close(this.#held, 0, 0);
    this.#drop(end < 0 ? this.#held.length : end);
    if (end < 0) return false;
    this.#state = "behind";
    return true;
  }

  /** Behind an object: another one, or the end of the frame. A bracket too many is dropped. */
  #readBehind(last: boolean): boolean {
    const { closing } = this.#frame;
    this.#drop(/^(?:\s*\})*/.exec(this.#held)![0].length);
    const rest = this.#held.trimStart();
    const space = this.#held.length - rest.length;
    if (!last && rest !== closing && closing.startsWith(rest)) return false;
    if (rest === "" && !last) return false;
    if (closing !== "" && rest.startsWith("{")) this.#look(space);
    else {
      if (closing !== "" && rest.startsWith(closing)) this.#drop(space + closing.length);
      this.#state = "text";
    }
    this.#full = this.#ended >= (this.options.maxCalls ?? Number.POSITIVE_INFINITY);
    return true;
  }

  /** An object begins at `place`. */
  #look(place: number): void {
    this.#object = place;
    this.#seen = place;
    this.#extent = new JsonExtent();
    this.#state = "head";
  }

  #start(name: string): void {
    this.#name = name;
    this.#arguments = "";
    this.#parts.push({ kind: "call-start", index: this.#begun++, name });
  }

  #delta(text: string): void {
    if (text === "") return;
    this.#arguments += text;
    this.#parts.push({ kind: "call-delta", index: this.#begun - 1, arguments: text });
  }

  #end(): void {
    const index = this.#ended++;
    this.#calledLast = true;
    this.#parts.push({ kind: "call-end", index, name: this.#name, arguments: this.#arguments });
  }

  #content(length: number): void {
    if (length === 0) return;
    const text = this.#held.slice(0, length);
    this.#parts.push({ kind: "text", text, start: this.#at, end: this.#at + length });
    this.#calledLast = false;
    if (text.trim() !== "") this.#onlyCallsYet = false;
    this.#drop(length);
  }

  #drop(length: number): void {
    this.#held = this.#held.slice(length);
    this.#at += length;
    this.#refused = Math.max(0, this.#refused - length);
  }
}
