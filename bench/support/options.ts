// Command-line options that several benchmarks share.
import { Option } from "commander";

export const commas = (text: string): string[] => text.split(",");
export const numbers = (text: string): number[] => commas(text).map(Number);

export const modelOption = () =>
  new Option("--model <ids...>", "model ids, or id.format as pocket ls shows them").default([
    "qwen2.5-coder-0.5b",
  ]);

export const kvOption = () =>
  new Option("--kv <type>", "type of keys and values: f32, f16, bf16, int8").default("f16");

export const kvsOption = () =>
  new Option("--kv <types>", "types of keys and values: f32, f16, bf16, int8")
    .argParser(commas)
    .default(["f16"]);

export const activationsOption = () =>
  new Option("--activations <type>", "type of activations: int8 or f32").default("int8");

export const depthsOption = () =>
  new Option("--depths <tokens>", "tokens already in the cache").argParser(numbers);

export const rowsOption = (example: string) =>
  new Option(
    "--rows <choices>",
    `rows to measure, such as "${example}"; a row matches a choice if it has all words`,
  )
    .argParser(commas)
    .default([]);

export const repeatOption = (count: number) =>
  new Option("--repeat <n>", "repetitions").argParser(Number).default(count);

export const compareOption = () =>
  new Option(
    "--compare <peer>",
    "alternate with a peer on the same weights; scripts/peers builds it",
  ).choices(["llama.cpp"]);

export const ggufOption = () =>
  new Option("--gguf <folders...>", "folders with the models' source files, besides the downloads").default(
    [],
  );

/** `--prefill-cache`, and its former name `--bases`, which the help does not list. */
export const prefillCacheOptions = (description: string): Option[] => [
  new Option("--prefill-cache <folder>", description),
  new Option("--bases <folder>", description).hideHelp(),
];

/** Reads both names of the option. */
export function withPrefillCache<Options extends { readonly prefillCache?: string }>(
  options: Options & { readonly bases?: string },
): Options {
  const folder = options.prefillCache ?? options.bases;
  return folder === undefined ? options : { ...options, prefillCache: folder };
}
