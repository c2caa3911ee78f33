// Loads xgrammar (Dong et al. 2024, arXiv 2411.15100), compiled to WebAssembly by @mlc-ai/web-xgrammar. That package says it is an ES
// module and is a script for all loaders, so `import` fails: its text is compiled as CommonJS here. The same text
// serves a worker thread, where what ends badly or never ends can be thrown away. It knows no vocabulary.
import { readFileSync } from "node:fs";
import Module from "node:module";
import type * as XGrammar from "@mlc-ai/web-xgrammar";

type Library = typeof XGrammar & { readonly binding: () => Binding };

/** What the package keeps to itself, and a mask without a turn of the event loop needs. */
interface Binding {
  vecIntToView(vector: IntVector): Int32Array;
}

export interface IntVector {
  delete(): void;
}

/** One grammar: every tool's schema, or that of the whole answer. */
export interface GrammarPlan {
  readonly schemas: readonly string[];
  /**
   * Text around what the schemas allow, one per schema. Without it the one schema is the whole answer. `free`:
   * any text may stand around the calls, which begin with that; `answer`: a schema of what may come instead of all
   * calls; `once`: one call at most.
   */
  readonly frames?: readonly { readonly begin: string; readonly end: string }[];
  readonly free?: string;
  readonly answer?: string;
  readonly once?: boolean;
}

const exportsDefault = "exports.default = index;";

/** The package's text with its binding exported as well. */
function libraryText(file: string): string {
  const text = readFileSync(file, "utf8");
  const patched = text.replace(exportsDefault, `${exportsDefault} exports.binding = () => binding;`);
  if (patched === text) throw new Error(`${file} is not the version that is expected here`);
  return patched;
}

function libraryFile(): string {
  return Module.createRequire(import.meta.url).resolve("@mlc-ai/web-xgrammar");
}

interface CompilingModule {
  exports: unknown;
  _compile(text: string, file: string): void;
}

let library: Library | undefined;

/** About 0.3 s the first time. */
export function loadXgrammar(): Library {
  if (library) return library;
  const file = libraryFile();
  const module = new (Module as unknown as new (file: string) => CompilingModule)(file);
  module._compile(libraryText(file), file);
  library = module.exports as Library;
  return library;
}

/**
 * From a plan to a compiled grammar, as text, because it runs in two places. One line, no white space of the
 * model's own: else small models write white space without end.
 */
const compileText = String.raw`
  const compact = [false, -1, undefined, false];
  const textOf = async (schema) => {
    const grammar = await xgrammar.Grammar.fromJSONSchema(schema, ...compact);
    const text = grammar.toString();
    grammar.dispose();
    // The library writes constants with escaped slashes, which no model does. Texts are changed, classes are not.
    const parts = /"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]/g;
    return text.replace(parts, (part) => (part[0] === '"' ? part.replaceAll("\\\\/", "/") : part));
  };
  if (!plan.frames) return compiler.compileGrammar(await textOf(plan.schemas[0]));
  const fit = async (schema) => ({ type: "grammar", grammar: await textOf(schema) });
  // A grammar's own beginning is its last rule; who reads it as text begins at "root", here a rule of a schema.
  const rooted = (text) => {
    const last = text.trim().split("\n").at(-1).split(" ")[0];
    const parts = /"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|[A-Za-z_]\w*/g;
    return text.replace(parts, (part) => (part === last ? "root" : part === "root" ? "root_of_schema" : part));
  };
  const tags = [];
  for (const [place, { begin, end }] of plan.frames.entries())
    tags.push({ type: "tag", begin, content: await fit(plan.schemas[place]), end });
  const calls = plan.free
    ? { type: "triggered_tags", triggers: [plan.free], tags, at_least_one: false, stop_after_first: plan.once }
    : { type: "tags_with_separator", separator: "\n", tags, at_least_one: true, stop_after_first: plan.once };
  if (!plan.answer) return compiler.compileStructuralTag({ type: "structural_tag", format: calls });
  // A choice takes no list of tags, so the list goes in as the grammar that it is.
  const list = await xgrammar.Grammar.fromStructuralTag({ type: "structural_tag", format: calls });
  const elements = [await fit(plan.answer), { type: "grammar", grammar: rooted(list.toString()) }];
  list.dispose();
  return compiler.compileStructuralTag({ type: "structural_tag", format: { type: "or", elements } });
`;

const AsyncFunction = (async () => {}).constructor as new (
  ...texts: string[]
) => (
  xgrammar: Library,
  compiler: XGrammar.GrammarCompiler,
  plan: GrammarPlan,
) => Promise<XGrammar.CompiledGrammar>;

export const compilePlan = new AsyncFunction("xgrammar", "compiler", "plan", compileText);

/**
 * The worker's text. It is given `{vocabulary, stopTokens, size, file}` as its data; when it has read them it says
 * `{clock}`, the file in which the system counts its computing time, if there is one. Then it is given plans as
 * messages, and answers each with `{ms}` or `{failure}`: milliseconds that it computed, or that went by where there is
 * no such clock. A failure inside WebAssembly leaves the instance unusable: the worker
 * must then be ended.
 */
export function workerText(): string {
  return `
    const { readFileSync, realpathSync } = require("node:fs");
    const Module = require("node:module");
    const { parentPort, workerData } = require("node:worker_threads");
    let clock;
    try {
      clock = realpathSync("/proc/thread-self") + "/schedstat";
      readFileSync(clock);
    } catch {
      clock = undefined;
    }
    const computedMs = () =>
      clock ? Number(readFileSync(clock, "utf8").split(" ")[0]) / 1e6 : performance.now();
    const said = [];
    for (const way of ["log", "warn", "error"]) console[way] = (...words) => said.push(words.join(" "));
    const { file, text, vocabulary, size, stopTokens } = workerData;
    const module_ = new Module(file);
    module_._compile(text, file);
    const xgrammar = module_.exports;
    const compile = async (xgrammar, compiler, plan) => {${compileText}};
    const compiler = (async () => {
      const info = await xgrammar.TokenizerInfo.createTokenizerInfo(vocabulary, "byte_level", false, size, stopTokens);
      return xgrammar.GrammarCompiler.createGrammarCompiler(info, false);
    })();
    compiler.then(() => parentPort.postMessage({ clock }), () => {});
    parentPort.on("message", async (plan) => {
      try {
        const ready = await compiler;
        const start = computedMs();
        const compiled = await compile(xgrammar, ready, plan);
        compiled.dispose();
        parentPort.postMessage({ ms: computedMs() - start });
      } catch (cause) {
        // What is thrown in C++ arrives as the number of its place in memory.
        const thrown = String(cause?.message ?? "the library refuses it");
        const fatal = said.find((line) => line.includes("[FATAL]")) ?? thrown;
        parentPort.postMessage({ failure: fatal.replace(/^\\[FATAL\\] \\S*:\\d+: /, "") });
      }
    });
  `;
}

/** What `workerText` needs besides the vocabulary. */
export function workerLibrary(): { readonly file: string; readonly text: string } {
  const file = libraryFile();
  return { file, text: libraryText(file) };
}

export type { CompiledGrammar, GrammarCompiler } from "@mlc-ai/web-xgrammar";
