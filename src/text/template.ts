// A model's chat template: renders messages and tools to a prompt, cut into template text and content. The template
// runs twice: with the real text, and with placeholders for content. The second rendering is used only if restoring
// the text gives the first one, character for character. For templates that inspect contents (trim or search them)
// fewer texts are replaced, down to none; then content that cannot be located and spells a control token is refused.
import { Template } from "@huggingface/jinja";
import type { Message, Tool } from "../chat/chat.ts";
import { PocketError, pocketError } from "../errors.ts";
import { type Piece, Placeholders } from "./placeholders.ts";
import type { AddedToken } from "./tokenizer.ts";

export interface Rendered {
  readonly text: string;
  /** Their texts, concatenated, are `text`. */
  readonly pieces: readonly Piece[];
}

export interface TemplateOptions {
  readonly addedTokens: readonly AddedToken[];
  /** Variables `bos_token` and `eos_token` of the template; absent: "". */
  readonly bosToken?: string;
  readonly eosToken?: string;
}

/** What gets a placeholder: whole contents; spelled-out added tokens; spelled-out special tokens; nothing. */
type Replaced = "contents" | "added" | "special" | "nothing";

const attempts: readonly Replaced[] = ["contents", "added", "special", "nothing"];

export class ChatTemplate {
  readonly #template: Template;
  readonly #added: RegExp | undefined;
  readonly #special: RegExp | undefined;
  /** False: the template ignores tools. */
  readonly takesTools: boolean;

  /** Throws UNSUPPORTED_MODEL if the template cannot be parsed or fails the self-test. */
  constructor(
    source: string,
    private readonly options: TemplateOptions,
  ) {
    this.#added = anyOf(options.addedTokens);
    this.#special = anyOf(options.addedTokens.filter(({ special }) => special));
    this.takesTools = /\btools\b/.test(source);
    try {
      this.#template = new Template(source);
      this.#selfTest();
    } catch (cause) {
      const sentence = cause instanceof PocketError ? cause.detail : (cause as Error).message;
      throw pocketError("UNSUPPORTED_MODEL", `The chat template cannot be used: ${sentence}`);
    }
  }

  /** Throws BAD_TEMPLATE; the detail is the template's own message where it raises one. */
  render(messages: readonly Message[], tools: readonly Tool[], addGenerationPrompt = true): Rendered {
    const text = this.#run(
      this.#prepare(messages, tools, new Placeholders(), "nothing"),
      addGenerationPrompt,
    );
    for (const replaced of attempts) {
      const placeholders = new Placeholders();
      const input = this.#prepare(messages, tools, placeholders, replaced);
      const rendered = this.#tryRun(input, addGenerationPrompt);
      if (rendered === undefined || placeholders.restore(rendered) !== text) continue;
      if (replaced === "contents") return { text, pieces: placeholders.split(rendered) };
      const pieces = locate(rendered, input.contents, placeholders);
      if (replaced === "nothing") this.#refuseControlTokens(messages, tools, pieces);
      return { text, pieces };
    }
    throw pocketError("BAD_TEMPLATE", "two renderings of the same messages differ");
  }

  #prepare(
    messages: readonly Message[],
    tools: readonly Tool[],
    placeholders: Placeholders,
    replaced: Replaced,
  ): Input {
    const literals =
      replaced === "nothing" ? undefined : replaced === "special" ? this.#special : this.#added;
    const shield = (text: string) => placeholders.shield(text, literals);
    const contents = messages.map(({ content }, index) =>
      // Templates test whether content is empty, so an empty one gets no placeholder.
      replaced === "contents" && content !== "" ? placeholders.put(content, index) : shield(content),
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

  /** Undefined if the template refuses placeholders although it accepted the text. */
  #tryRun(input: Input, addGenerationPrompt: boolean): string | undefined {
    try {
      return this.#run(input, addGenerationPrompt);
    } catch {
      return undefined;
    }
  }

  /** Without placeholders a control token of the template looks like one that content spells. */
  #refuseControlTokens(messages: readonly Message[], tools: readonly Tool[], pieces: readonly Piece[]): void {
    const found = new Set(pieces.map(({ message }) => message));
    const unlocated = messages.map((message, index) =>
      found.has(index) ? { ...message, content: "" } : message,
    );
    const literal = this.#special && JSON.stringify([unlocated, tools]).match(this.#special)?.[0];
    if (literal !== undefined) {
      throw pocketError("BAD_TEMPLATE", `a message or tool spells the control token ${literal}`);
    }
  }

  /** Self-test: renders a short conversation, and one with a tool if the template takes tools. */
  #selfTest(): void {
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

/** The default template of a tokenizer_config.json. Throws UNSUPPORTED_MODEL if there is none. */
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

/** Variables of the template. `contents` are those of `messages`, with placeholders. */
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

/** Arguments of a call that the model never finished are not JSON: they stay text, so the request does not fail. */
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

/** Locates the contents in a rendering with placeholders, in order; those not found stay template text. */
function locate(rendered: string, contents: readonly string[], placeholders: Placeholders): Piece[] {
  const pieces: Piece[] = [];
  let at = 0;
  for (const [message, content] of contents.entries()) {
    const spelling = [content, content.trim()].find((text) => text !== "" && rendered.indexOf(text, at) >= 0);
    if (spelling === undefined) continue;
    const start = rendered.indexOf(spelling, at);
    pieces.push(...placeholders.split(rendered.slice(at, start)));
    pieces.push({ kind: "content", text: placeholders.restore(spelling), message });
    at = start + spelling.length;
  }
  pieces.push(...placeholders.split(rendered.slice(at)));
  return pieces;
}

function anyOf(tokens: readonly AddedToken[]): RegExp | undefined {
  if (tokens.length === 0) return undefined;
  const literals = [...tokens]
    .sort((a, b) => b.content.length - a.content.length)
    .map(({ content }) => content.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&"));
  return new RegExp(literals.join("|"), "g");
}
