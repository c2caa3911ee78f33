// Parses the header of a tool call, `{"name": "…", "arguments": {`, from text that may be incomplete. The result is
// "none" (not a call), "open" (not known yet), or the name and the offset of the arguments. It reads no further than
// the opening bracket of the arguments.

export interface ToolCallHeader {
  readonly name: string;
  /** Offset of the opening bracket of the arguments. */
  readonly argumentsAt: number;
}

/** A call parsed from a complete object. */
export interface ParsedToolCall {
  readonly name: string;
  /** JSON text. */
  readonly arguments: string;
}

const head = /^\{\s*"name"\s*:\s*"((?:[^"\\]|\\.)*)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)/s;
const firstKey = /^\{\s*"([^"]*)"/;
const firstName = /^\{\s*"name"\s*:\s*"([^"\\]*)("?)/;
/** First keys that a call may have besides `name`. */
const otherKeys = ["arguments", "parameters", "type", "id"];

/** `offers(name, partly)`: true if `name`, or with `partly` a name that begins with it, is that of a tool. */
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
    // Up to an escape the name is a prefix like any other. So a refused text stays refused whatever follows, and the
    // result does not depend on how much of the text is known.
    if (!offers(named[1]!, named[2] === "")) return "none";
    if (!text.slice(named[0].length).startsWith("\\")) return "open";
  }
  const key = firstKey.exec(text)?.[1];
  if (key !== undefined) return key === "name" || otherKeys.includes(key) ? "open" : "none";
  return /^\{\s*("[a-z]*)?$/.test(text) ? "open" : "none";
}

/** The call in a complete object, in any order of its keys; undefined if it is not a call. */
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
  // Some models write the arguments as a JSON string.
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
