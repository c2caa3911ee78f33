// The beginning of a tool call as models write it: `{"name": "…", "arguments": {`. Read from text that may
// still be coming, so there are three answers: not a call, not yet known, and the name with the place where the
// arguments begin. It keeps nothing and reads no further than the opening bracket of the arguments.

export interface ToolCallHeader {
  readonly name: string;
  /** Where the arguments' opening bracket stands. */
  readonly argumentsAt: number;
}

/** A call whose object is whole. */
export interface ParsedToolCall {
  readonly name: string;
  /** JSON text. */
  readonly arguments: string;
}

const head = /^\{\s*"name"\s*:\s*"((?:[^"\\]|\\.)*)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)/s;
const firstKey = /^\{\s*"([^"]*)"/;
const firstName = /^\{\s*"name"\s*:\s*"([^"\\]*)("?)/;
/** What a call may begin with, besides its name. */
const otherKeys = ["arguments", "parameters", "type", "id"];

/** `offers` says whether a name, or with `partly` a beginning of one, is that of a tool. */
export function readToolCallHeader(
  text: string,
  offers: (name: string, partly: boolean) => boolean,
): ToolCallHeader | "open" | "none" {
  const whole = head.exec(text);
  if (whole) {
    const name = unquoted(whole[1]!);
    return name !== undefined && offers(name, false) ? { name, argumentsAt: whole[0].length } : "none";
  }
  const named = firstName.exec(text);
  if (named) {
    // An escape ends what is plain of the name: up to it, it is a beginning like any other. So a text that was
    // refused stays refused whatever follows, and the verdict does not depend on when it is asked for.
    if (!offers(named[1]!, named[2] === "")) return "none";
    if (!text.slice(named[0].length).startsWith("\\")) return "open";
  }
  const key = firstKey.exec(text)?.[1];
  if (key !== undefined) return key === "name" || otherKeys.includes(key) ? "open" : "none";
  return /^\{\s*("[a-z]*)?$/.test(text) ? "open" : "none";
}

/** The call that a whole object is, whatever the order of its keys; undefined where it is none. */
export function parseToolCall(text: string): ParsedToolCall | undefined {
  let object: unknown;
  try {
    object = JSON.parse(text);
  } catch {
    return undefined;
  }
  const { name, arguments: given, parameters } = object as Record<string, unknown>;
  const value = given ?? parameters ?? {};
  if (typeof name !== "string" || name === "") return undefined;
  if (typeof value === "object" && !Array.isArray(value)) return { name, arguments: JSON.stringify(value) };
  // Some models write the arguments as JSON text inside the JSON.
  return typeof value === "string" && isObject(value) ? { name, arguments: value } : undefined;
}

function isObject(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}

function unquoted(text: string): string | undefined {
  try {
    return JSON.parse(`"${text}"`) as string;
  } catch {
    return undefined;
  }
}
