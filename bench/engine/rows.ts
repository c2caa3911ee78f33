// Which rows the `engine` bench has: named as llama-bench names its own, chosen by depth and by words, so that one
// can run a part. Nothing is measured here.

export interface EngineRow {
  readonly name: string;
  readonly kind: "cold" | "prefill" | "decode" | "together";
  /** Tokens computed; for `cold` the whole prompt. */
  readonly count: number;
  /** Tokens in front. */
  readonly depth: number;
}

export const streams = 8;
const prefilled = 512;
const decoded = 32;

export interface RowChoice {
  readonly prefillDepths: readonly number[];
  readonly decodeDepths: readonly number[];
  /** Words that must all occur in a row's name, apart by spaces; a row that fits one of the choices is in. */
  readonly words: readonly string[];
  /** Tokens that the model can hold. */
  readonly context: number;
}

/** Deepest first, as the engines need it; the prompt of the greatest depth is the cold row. */
export function engineRows({ prefillDepths, decodeDepths, words, context }: RowChoice): EngineRow[] {
  const fits = (depth: number) => depth + prefilled <= context;
  const row = (kind: EngineRow["kind"], name: string, count: number, depth: number) => ({
    name: `${name} @ d${depth}`,
    kind,
    count,
    depth,
  });
  const all = [
    ...prefillDepths.filter(fits).map((depth) => row("prefill", `pp${prefilled}`, prefilled, depth)),
    ...decodeDepths.filter(fits).map((depth) => row("decode", `tg${decoded}`, decoded, depth)),
    ...decodeDepths
      .filter((depth) => depth === 0)
      .map((depth) => row("together", `tg${decoded} x${streams}`, decoded, depth)),
  ].toSorted((a, b) => b.depth - a.depth);
  const deepest = all[0]?.depth ?? 0;
  const cold = deepest === 0 ? [] : [row("cold", `cold${deepest}`, deepest, 0)];
  return [...cold, ...all].filter(({ name }) => isChosen(name, words));
}

export function isChosen(name: string, words: readonly string[]): boolean {
  const parts = name.split(" ");
  return (
    words.length === 0 || words.some((choice) => choice.split(" ").every((word) => parts.includes(word)))
  );
}

/** Token ids without repetition to speak of; texts of different salt differ from their first token on. */
export function text(length: number, salt: number, vocab: number): number[] {
  const range = Math.min(vocab - 100, 40_000);
  return Array.from({ length }, (_, index) => 100 + ((index * 7919 + salt * 104_729) % range));
}
