// The tiny model's tokenizer as GGUF metadata: the 256 byte tokens, a few merges so that text has tokens of
// several lengths, the three ChatML control tokens, and a template. Every id below `tokens` is a real token.
import type { WritableValue } from "./gguf-writer.ts";

export interface TinyTokenizer {
  readonly metadata: Readonly<Record<string, WritableValue>>;
  /** Size of the vocabulary. */
  readonly tokens: number;
}

export function tinyTokenizer(family: "qwen2" | "llama"): TinyTokenizer {
  const normal = [...byteAlphabet(), ...merges.map(([left, right]) => left + right)];
  const tokens = [...normal, ...controls];
  const id = (text: string) => tokens.indexOf(text);
  return {
    tokens: tokens.length,
    metadata: {
      "tokenizer.ggml.model": "gpt2",
      "tokenizer.ggml.pre": family === "qwen2" ? "qwen2" : "smollm",
      "tokenizer.ggml.tokens": tokens,
      "tokenizer.ggml.token_type": tokens.map((_, index) => (index < normal.length ? 1 : 3)),
      "tokenizer.ggml.merges": merges.map((pair) => pair.join(" ")),
      "tokenizer.ggml.bos_token_id": id("<|endoftext|>"),
      "tokenizer.ggml.eos_token_id": id("<|im_end|>"),
      "tokenizer.ggml.padding_token_id": id("<|endoftext|>"),
      "tokenizer.ggml.add_bos_token": false,
      "tokenizer.chat_template": template,
    },
  };
}

const controls = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"] as const;

/** Ġ is a space, Ċ a line break; each merge uses what stands before it. */
const merges: readonly (readonly [string, string])[] = [
  ["Ġ", "t"],
  ["h", "e"],
  ["Ġt", "he"],
  ["Ġ", "a"],
  ["i", "n"],
  ["r", "e"],
  ["o", "n"],
  ["e", "r"],
  ["Ġ", "s"],
  ["in", "g"],
  ["a", "n"],
  ["an", "d"],
  ["Ġ", "w"],
  ["o", "r"],
  ["l", "l"],
  ["Ġ", "Ġ"],
  ["ĠĠ", "ĠĠ"],
  ["Ċ", "Ċ"],
  ["u", "s"],
  ["us", "er"],
];

const template = `{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- 'Tools:' }}
    {%- for tool in tools %}
        {{- '\\n' + (tool | tojson) }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'tool' %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
    {%- elif message.role != 'system' or not loop.first %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n' + (call.function | tojson) + '\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}`;

/** The 256 bytes as printable characters: those of Latin-1 that print stand for themselves, the rest follow 0x100. */
function byteAlphabet(): string[] {
  const prints = (byte: number) =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(prints(byte) ? byte : next++));
}
