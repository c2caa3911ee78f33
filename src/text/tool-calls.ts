// Streaming parser for tool calls in an answer: `<tool_call>{"name": …, "arguments": …}</tool_call>` (the format of
// Hermes and Qwen), and what small models write instead: the object in a code fence, in `<tools>`, or bare at the
// start. Everything else is text. The result does not depend on how the answer is split into chunks.
import { JsonExtent } from "./json-extent.ts";
import { parseToolCall, readToolCallHeader } from "./tool-call-header.ts";

/** [start, end) is the range of a text part in the answer, in characters. `index` counts calls. */
export type AnswerPart =
  | { readonly kind: "text"; readonly text: string; readonly start: number; readonly end: number }
  | { readonly kind: "call-start"; readonly index: number; readonly name: string }
  | { readonly kind: "call-delta"; readonly index: number; readonly arguments: string }
  | { readonly kind: "call-end"; readonly index: number; readonly name: string; readonly arguments: string };

export interface ToolCallOptions {
  /** Names of the tools offered. */
  readonly names: readonly string[];
  /** Tools whose calls are recognised only in `<tool_call>`: a grammar checks their arguments only there. */
  readonly taggedOnly?: readonly string[];
  /** Number of calls after which the answer is `full`. Default: no limit. */
  readonly maxCalls?: number;
}

interface Frame {
  /** Text in front of the object, with white space. */
  readonly opening: RegExp;
  readonly closing: string;
  /** True: a call of any name counts, also of a tool that was not offered. */
  readonly anyName: boolean;
}

const tag: Frame = { opening: /^<tool_call>\s*/, closing: "</tool_call>", anyName: true };
const tools: Frame = { opening: /^<tools>\s*/, closing: "</tools>", anyName: false };
const fence: Frame = {
  opening: /^```(?:json|tool_call|tool_code|xml)?[ \t]*\n\s*/,
  closing: "```",
  anyName: false,
};
const bare: Frame = { opening: /^/, closing: "", anyName: false };
const openers = ["<tool_call>", "<tools>", "```"] as const;
const frames = { "<tool_call>": tag, "<tools>": tools, "```": fence };
const fenceBeginnings = ["```json", "```tool_call", "```tool_code", "```xml"];

/** tail: after the arguments, inside the object; rest: its other keys; behind: after the object. */
type State = "text" | "head" | "arguments" | "tail" | "rest" | "behind";

export class ToolCalls {
  /** Text that is not decided yet, and its offset in the answer. */
  #held = "";
  #at = 0;
  #state: State = "text";
  #frame = bare;
  /** Offsets in `#held` in state `head`: of the object, and of the part that was not scanned. */
  #object = 0;
  #seen = 0;
  #extent = new JsonExtent();
  /** Offset in `#held` from which openers are searched: one before it was refused. */
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

  /** `maxCalls` calls are complete: no further part follows. */
  get full(): boolean {
    return this.#full;
  }

  /** Number of calls with complete arguments. */
  get complete(): number {
    return this.#ended;
  }

  /** The answer has ended inside a call. */
  get broken(): boolean {
    return this.#begun > this.#ended;
  }

  /** The parts that are decided now. */
  push(text: string): AnswerPart[] {
    if (this.#full) return [];
    this.#held += text;
    while (this.#advance(false));
    return this.#parts.splice(0);
  }

  /** Call at the end of the text: returns what was held back. */
  flush(): AnswerPart[] {
    if (this.#full) return [];
    while (this.#advance(true));
    // A call that ends before its arguments is text.
    if (this.#state === "head") this.#content(this.#held.length);
    // White space behind a call is dropped; behind text it is text.
    if (this.#state === "text" && (this.#held.trim() !== "" || !this.#calledLast))
      this.#content(this.#held.length);
    this.#held = "";
    return this.#parts.splice(0);
  }

  /** One transition of the state machine; false: it needs more text. `last`: no more text follows. */
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
    // White space in front of a call belongs to the call.
    this.#content(this.#held.slice(0, at).trimEnd().length);
    const space = this.#held.length - this.#held.trimStart().length;
    this.#frame = frame;
    this.#beginObject(space + length);
    return true;
  }

  /** The first opener that is complete and not refused; undefined while text in front of it may become one. */
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

  /** True if `rest` may become the opening of an object in this frame with more text. */
  #mayOpen(rest: string, frame: Frame): boolean {
    if (frame.opening.exec(rest)?.[0].length === rest.length) return true;
    return (
      frame === fence &&
      (fenceBeginnings.some((word) => word.startsWith(rest)) ||
        (/^```[a-z_]*[ \t]*$/.test(rest) && fence.opening.test(`${rest}\n`)))
    );
  }

  /** Length of the held text that cannot be part of a call or of white space in front of one. */
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
      // Moves the extent to the start of the arguments, one bracket deep.
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

  /** In `<tool_call>` any name counts: the client reports a tool that it does not have. */
  #offers(name: string, partly: boolean): boolean {
    if (this.#frame.anyName) return name !== "" || partly;
    const { names, taggedOnly = [] } = this.options;
    const untagged = names.filter((offered) => !taggedOnly.includes(offered));
    return untagged.some((offered) => (partly ? offered.startsWith(name) : offered === name));
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

  /** The closing bracket of the object may be missing. */
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

  /** Behind an object: another one, or the end of the frame. Surplus closing brackets are dropped. */
  #readBehind(last: boolean): boolean {
    const { closing } = this.#frame;
    this.#drop(/^(?:\s*\})*/.exec(this.#held)![0].length);
    const rest = this.#held.trimStart();
    const space = this.#held.length - rest.length;
    if (!last && rest !== closing && closing.startsWith(rest)) return false;
    if (rest === "" && !last) return false;
    if (closing !== "" && rest.startsWith("{")) this.#beginObject(space);
    else {
      if (closing !== "" && rest.startsWith(closing)) this.#drop(space + closing.length);
      this.#state = "text";
    }
    this.#full = this.#ended >= (this.options.maxCalls ?? Number.POSITIVE_INFINITY);
    return true;
  }

  /** An object begins at `offset` of the held text. */
  #beginObject(offset: number): void {
    this.#object = offset;
    this.#seen = offset;
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
