// A model's chat template: messages and tools in, the prompt out, cut into what the template wrote and what came
// from outside. It is run twice: as it is, and with marks in place of foreign text; the second is believed
// only if putting the text back gives the first, character for character. Templates that look at contents
// (trim them, search them) get weaker marks, down to none; what then cannot be told apart is refused where it
// spells a control token. It knows no tokens but the spelling of the added ones.
import { Template } from "@huggingface/jinja";
import type { Message, Tool } from "../chat/chat.ts";
import { PocketError, pocketError } from "../errors.ts";
import { type Piece, Placeholders } from "./placeholders.ts";
import type { AddedToken } from "./tokenizer.ts";

export interface Rendered {
  readonly text: string;
  /** Their texts joined are `text`. */
  readonly pieces: readonly Piece[];
}

export interface TemplateOptions {
  readonly addedTokens: readonly AddedToken[];
  /** Given to the template as `bos_token` and `eos_token`; absent: "". */
  readonly bosToken?: string;
  readonly eosToken?: string;
}

/** What stands in for foreign text: whole contents; spelled-out added tokens; the special ones; nothing. */
type Marking = "contents" | "added" | "special" | "nothing";

const markings: readonly Marking[] = ["contents", "added", "special", "nothing"];

export class ChatTemplate {
  readonly #template: Template;
  readonly #added: RegExp | undefined;
  readonly #special: RegExp | undefined;
  /** False: the template has no place for tools; passing them changes nothing. */
  readonly takesTools: boolean;

  /** Throws UNSUPPORTED_MODEL when the template cannot be parsed or fails its self-test. */
  constructor(
    source: string,
    private readonly options: TemplateOptions,
  ) {
    this.#added = anyOf(options.addedTokens);
    this.#special = anyOf(options.addedTokens.filter(({ special }) => special));
    this.takesTools = /\btools\b/.test(source);
    try {
      this.#template = new Template(source);
      this.#test();
    } catch (cause) {
      const sentence = cause instanceof PocketError ? cause.detail : (cause as Error).message;
      throw pocketError("UNSUPPORTED_MODEL", `The chat template cannot be used: ${sentence}`);
    }
  }

  /** Throws BAD_TEMPLATE with the template's own sentence where it raises one. */
  render(messages: readonly Message[], tools: readonly Tool[], addGenerationPrompt = true): Rendered {
    const text = this.#run(
      this.#prepare(messages, tools, new Placeholders(), "nothing"),
      addGenerationPrompt,
    );
    for (const marking of markings) {
      const marks = new Placeholders();
      const input = this.#prepare(messages, tools, marks, marking);
      const marked = this.#runMarked(input, addGenerationPrompt);
      if (marked === undefined || marks.restore(marked) !== text) continue;
      if (marking === "contents") return { text, pieces: marks.split(marked) };
      const pieces = locate(marked, input.contents, marks);
      if (marking === "nothing") this.#refuseControlTokens(messages, tools, pieces);
      return { text, pieces };
    }
    throw pocketError("BAD_TEMPLATE", "two renderings of the same messages differ");
  }

  #prepare(
    messages: readonly Message[],
    tools: readonly Tool[],
    marks: Placeholders,
    marking: Marking,
  ): Input {
    const literals = marking === "nothing" ? undefined : marking === "special" ? this.#special : this.#added;
    const shield = (text: string) => marks.shield(text, literals);
    const contents = messages.map(({ content }, index) =>
      // Templates ask whether there is a content at all, so an empty one stays empty.
      marking === "contents" && content !== "" ? marks.put(content, index) : shield(content),
    );
    return {
      contents,
      messages: messages.map((message, index) => templateMessage(message, contents[index]!, shield)),
      tools: tools.map((tool) => shieldDeep(templateTool(tool), shield)),
    };
  }

  #run(input: Input, addGenerationPrompt: boolean): string {
    try {
      return this.#template.render({
        messages: input.messages,
        ...(input.tools.length > 0 ? { tools: input.tools } : {}),
        add_generation_prompt: addGenerationPrompt,
        bos_token: this.options.bosToken ?? "",
        eos_token: this.options.eosToken ?? "",
      });
    } catch (cause) {
      throw pocketError("BAD_TEMPLATE", (cause as Error).message.replace(/\.$/, ""));
    }
  }

  /** Undefined where the template refuses marks although it took the text itself. */
  #runMarked(input: Input, addGenerationPrompt: boolean): string | undefined {
    try {
      return this.#run(input, addGenerationPrompt);
    } catch {
      return undefined;
    }
  }

  /** Without marks nothing tells a control token of the template from one that foreign text spells. */
  #refuseControlTokens(messages: readonly Message[], tools: readonly Tool[], pieces: readonly Piece[]): void {
    const found = new Set(pieces.map(({ message }) => message));
    const loose = messages.map((message, index) =>
      found.has(index) ? { ...message, content: "" } : message,
    );
    const literal = this.#special && JSON.stringify([loose, tools]).match(this.#special)?.[0];
    if (literal !== undefined) {
      throw pocketError("BAD_TEMPLATE", `a message or tool spells the control token ${literal}`);
    }
  }

  /** A short conversation, and one with a tool where the template knows tools. */
  #test(): void {
    const contents = ["Be brief.", "What is two and two?", "Four.", "And three more?"];
    const roles = ["system", "user", "assistant", "user"] as const;
    const messages = roles.map((role, index) => ({ role, content: contents[index]! }));
    const tool = { name: "add", description: "Adds.", parameters: { type: "object", properties: {} } };
    for (const tools of this.takesTools ? [[], [tool]] : [[]]) {
      const { text } = this.render(messages, tools);
      const lost = contents.find((content) => !text.includes(content));
      if (lost !== undefined) {
        throw pocketError("BAD_TEMPLATE", `it drops the text "${lost}" of a short test conversation`);
      }
    }
  }
}

/** The default template of a tokenizer_config.json. Throws UNSUPPORTED_MODEL where there is none. */
export function templateSource(tokenizerConfig: unknown): string {
  const { chat_template: found } = tokenizerConfig as { readonly chat_template?: unknown };
  if (typeof found === "string") return found;
  if (Array.isArray(found)) {
    const named = found as readonly { readonly name?: unknown; readonly template?: unknown }[];
    const chosen = named.find(({ name }) => name === "default") ?? named[0];
    if (typeof chosen?.template === "string") return chosen.template;
  }
  throw pocketError("UNSUPPORTED_MODEL", "The model has no chat template in tokenizer_config.json.");
}

/** What a template is given. `contents` are those of `messages`, as marked. */
interface Input {
  readonly contents: readonly string[];
  readonly messages: readonly unknown[];
  readonly tools: readonly unknown[];
}

type Shield = (text: string) => string;

function templateMessage(message: Message, content: string, shield: Shield): unknown {
  return {
    role: message.role,
    content,
    ...(message.reasoning === undefined ? {} : { reasoning_content: shield(message.reasoning) }),
    ...(message.name === undefined ? {} : { name: shield(message.name) }),
    ...(message.toolCallId === undefined ? {} : { tool_call_id: shield(message.toolCallId) }),
    ...(message.toolCalls === undefined || message.toolCalls.length === 0
      ? {}
      : {
          tool_calls: message.toolCalls.map((call) =>
            shieldDeep(
              {
                id: call.id,
                type: "function",
                function: { name: call.name, arguments: parsedArguments(call.arguments) },
              },
              shield,
            ),
          ),
        }),
  };
}

function templateTool(tool: Tool): unknown {
  const { name, description, parameters } = tool;
  return {
    type: "function",
    function: {
      name,
      ...(description === undefined ? {} : { description }),
      ...(parameters === undefined ? {} : { parameters }),
    },
  };
}

/** A history may hold arguments that a model never finished: those stay text rather than fail the request. */
function parsedArguments(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

function shieldDeep(value: unknown, shield: Shield): unknown {
  if (typeof value === "string") return shield(value);
  if (Array.isArray(value)) return value.map((item) => shieldDeep(item, shield));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [shield(key), shieldDeep(item, shield)]),
  );
}

/** Finds the contents in a marked rendering, in order; those that are not there stay template text. */
function locate(marked: string, contents: readonly string[], marks: Placeholders): Piece[] {
  const pieces: Piece[] = [];
  let at = 0;
  for (const [message, content] of contents.entries()) {
    const spelling = [content, content.trim()].find((text) => text !== "" && marked.indexOf(text, at) >= 0);
    if (spelling === undefined) continue;
    const start = marked.indexOf(spelling, at);
    pieces.push(...marks.split(marked.slice(at, start)));
    pieces.push({ kind: "content", text: marks.restore(spelling), message });
    at = start + spelling.length;
  }
  pieces.push(...marks.split(marked.slice(at)));
  return pieces;
}

function anyOf(tokens: readonly AddedToken[]): RegExp | undefined {
  if (tokens.length === 0) return undefined;
  const literals = [...tokens]
    .sort((a, b) => b.content.length - a.content.length)
    .map(({ content }) => content.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&"));
  return new RegExp(literals.join("|"), "g");
}
