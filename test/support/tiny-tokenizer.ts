// The tiny model's tokenizer as GGUF metadata: 256 byte tokens, a few merges so that tokens have several lengths, the three
// ChatML control tokens, and a template. Every id below `tokens` is a token.
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

/** Ġ is a space, Ċ a line break; a merge uses the results of earlier ones. */
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

/** GPT-2's printable character for each byte: itself where Latin-1 prints it, else the next one from 0x100. */
function byteAlphabet(): string[] {
  const prints = (byte: number) =>
    (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => String.fromCharCode(prints(byte) ? byte : next++));
}
