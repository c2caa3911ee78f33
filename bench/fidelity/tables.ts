// The tables of the fidelity benchmark out of its lines: a table per turn and model, needles, chains, and which
// conversations they come from. Of two lines about the same condition the later one counts.
import { arms } from "./arms.ts";
import type { NeedleKind } from "./conversation.ts";
import type { ScoreLine } from "./fidelity.ts";
import type { Measured } from "./measure.ts";
import { compare, referenceTurn } from "./reference-results.ts";
import { oracles, sameTokens, sameTokensRows } from "./same-tokens.ts";
import { type Pool, pooled, pooledNeedles, poolOf, short } from "./score.ts";
import { mean } from "./statistics.ts";

type Row = Readonly<Record<string, string | number>>;
type LinkLine = NonNullable<ScoreLine["link"]>;

export function printTables(lines: readonly ScoreLine[]): void {
  for (const label of new Set(lines.map((line) => line.label))) {
    const own = ofOneScene(latest(lines.filter((line) => line.label === label)));
    const { cpu, cores, features } = own[0]!.machine;
    const commits = [...new Set(own.map(({ machine }) => machine.commit))].join(", ");
    print(`## ${label}\n\n${cpu}, ${cores} cores, ${features.join(" ")}; commit ${commits}\n`);
    const scores = own.flatMap(({ engine, scores }) => (engine === undefined && scores ? [scores] : []));
    const links = own.flatMap((line) => line.link ?? []);
    if (scores.length > 0) printConversations(label, scores);
    for (const engine of new Set(own.flatMap((line) => line.engine ?? []))) {
      printSameTokens(
        engine,
        scores,
        own.flatMap((line) => (line.engine === engine ? (line.scores ?? []) : [])),
      );
    }
    if (links.length > 0) printChain(links);
  }
}

function latest(lines: readonly ScoreLine[]): ScoreLine[] {
  const keyOf = ({ engine, scores, link }: ScoreLine) =>
    scores ? `${engine} ${scores.seed} ${scores.arm}` : `round ${link!.round} ${link!.arm}`;
  return [...new Map(lines.map((line) => [keyOf(line), line])).values()];
}

/** The lines of each seed that were measured on the conversation of its oracle. */
function ofOneScene(lines: readonly ScoreLine[]): ScoreLine[] {
  const own = lines.flatMap(({ engine, scores }) =>
    engine === undefined && scores?.arm === "none" ? [scores] : [],
  );
  const scenes = new Map(own.map(({ seed, scene }) => [seed, scene]));
  return lines.filter(({ scores }) => !scores || scenes.get(scores.seed) === scores.scene);
}

function printConversations(label: string, scores: readonly Measured[]): void {
  const oracles = scores.filter(({ arm }) => arm === "none");
  table(
    "Conversations (tokens)",
    oracles.map(({ seed, memory, tokens }) => ({ seed, ...tokens, "memory by": memory })),
  );
  const names = arms.map(({ name }) => name).filter((name) => scores.some(({ arm }) => arm === name));
  const of = (name: string) => scores.filter(({ arm }) => arm === name);
  const oracleOf = (own: readonly Measured[]) =>
    own.map(({ seed }) => oracles.find((oracle) => oracle.seed === seed)!);
  for (const turn of Object.keys(oracles[0]!.turns)) {
    const rows = names.map((arm): Row => {
      const own = of(arm);
      const computed = Math.round(mean(own.map((one) => one.computed)));
      const row = pooled(
        own.map(({ turns }) => turns[turn]!),
        oracleOf(own).map(({ turns }) => turns[turn]!),
      );
      return { arm, computed, ...row };
    });
    table(`Turn: ${turn}`, rows);
    const pools = names.map((arm): [string, Pool] => [arm, poolOf(of(arm).map(({ turns }) => turns[turn]!))]);
    printComparison(label, turn, Object.fromEntries(pools));
  }
  const kinds: readonly NeedleKind[] = ["survivor", "summary", "removed"];
  const needles = names.map((arm): Row => {
    const cells = kinds.flatMap((kind) => {
      const own = of(arm).flatMap((one) => one.needles.filter((needle) => needle.kind === kind));
      const { recalled, margin } = pooledNeedles(own);
      return [
        [`${kind}: recalled`, recalled],
        [`${kind}: margin`, margin],
      ];
    });
    return { arm, ...Object.fromEntries(cells) };
  });
  table("Needles (margin: logprob of the right port minus that of wrong ones)", needles);
}

function printComparison(label: string, turn: string, here: Readonly<Record<string, Pool>>): void {
  const reference = referenceTurn(label, turn);
  if (!reference) return;
  const { rows, pairs, pairsAlike, near } = compare(here, reference.arms);
  if (rows.length === 0) return;
  const open = (some: { readonly openTokens: number; readonly tokens: number }) =>
    `${((100 * some.openTokens) / some.tokens).toFixed(0)} %`;
  const counts = `${near} of ${rows.length} means within a factor of two, ${pairsAlike} of ${pairs} pairs of arms in the same order`;
  const shares = `open tokens: ${open(rows[0]!.here)} here, ${open(reference)} in the reference`;
  table(
    `Compared with the reference: ${turn} (${counts}; ${shares})`,
    rows.map((row) => ({
      arm: row.arm,
      "KL here": short(row.here.kl),
      "KL reference": short(row.reference.kl),
      "here / reference": row.ratio.toFixed(2),
      "conv means here": `${short(row.here.least)} – ${short(row.here.most)}`,
      "conv means reference": `${short(row.reference.least)} – ${short(row.reference.most)}`,
      "KL open here": short(row.here.openKl),
      "KL open reference": short(row.reference.open),
      "open: here / reference": row.openRatio.toFixed(2),
    })),
  );
}

function printSameTokens(engine: string, here: readonly Measured[], reference: readonly Measured[]): void {
  const said = oracles(reference);
  if (said.length > 0) table(`The same tokens in PyTorch: the oracles (${engine})`, said);
  for (const turn of Object.keys(here[0]!.turns)) {
    const rows = sameTokensRows(sameTokens(here, reference, turn));
    if (rows.length > 0) table(`The same tokens in PyTorch: ${turn}`, rows);
  }
}

function printChain(links: readonly LinkLine[]): void {
  const rows = links.map(
    ({ round, prompt, arm, stale, answer, text }): Row => ({
      round,
      prompt,
      arm,
      stale,
      "KL answer": short(mean(answer.divergences)),
      "top-1 answer": `${(100 * mean(answer.agreed.map(Number))).toFixed(0)} %`,
      "KL text": short(mean(text.divergences)),
      "top-1 text": `${(100 * mean(text.agreed.map(Number))).toFixed(1)} %`,
    }),
  );
  table("Chain", rows);
  const halves = [...new Set(links.map(({ arm }) => arm))].map((arm): Row => {
    const own = links.filter((link) => link.arm === arm);
    const middle = Math.ceil(own.length / 2);
    const kl = (some: readonly LinkLine[], what: "answer" | "text") =>
      short(mean(some.flatMap((link) => link[what].divergences)));
    const [first, second] = [own.slice(0, middle), own.slice(middle)];
    return {
      arm,
      rounds: own.length,
      "KL answer, first half": kl(first, "answer"),
      "second half": kl(second, "answer"),
      "KL text, first half": kl(first, "text"),
      "text, second half": kl(second, "text"),
    };
  });
  table("Chain: does it add up?", halves);
}

function table(title: string, rows: readonly Row[]): void {
  const columns = Object.keys(rows[0]!);
  const cells = rows.map((row) => columns.map((column) => String(row[column])));
  const lines = [columns, columns.map(() => "---"), ...cells].map((line) => `| ${line.join(" | ")} |`);
  print(`### ${title}\n\n${lines.join("\n")}\n`);
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}
