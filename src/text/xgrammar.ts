// Loads xgrammar (Dong et al. 2024, arXiv 2411.15100), compiled to WebAssembly by @mlc-ai/web-xgrammar, and compiles
// plans to grammars. The package is declared as an ES module but is a script, so `import` fails: its text is compiled
// as CommonJS here. A worker thread, which can be ended at any time, gets the same text.
import { readFileSync } from "node:fs";
import Module from "node:module";
import type * as XGrammar from "@mlc-ai/web-xgrammar";

type Library = typeof XGrammar & { readonly binding: () => Binding };

/** Internal binding of the package, needed for synchronous masks. */
interface Binding {
  vecIntToView(vector: IntVector): Int32Array;
}

export interface IntVector {
  delete(): void;
}

/** The input of one grammar: the schemas of the tools, or the schema of the whole answer. JSON texts. */
export interface GrammarPlan {
  readonly schemas: readonly string[];
  /**
   * Text before and after the arguments of a tool call, one per schema. Absent: the only schema is that of the whole
   * answer. `free`: calls begin with this text, and any text may come around them. `answer`: schema of an answer that
   * may come instead of calls. `once`: at most one call.
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
  if (patched === text) throw new Error(`${file} is not the expected version`);
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
 * Compiles a plan; as text, because it runs on the main thread and in a worker. JSON is limited to one line without
 * optional white space: otherwise small models write white space without end.
 */
const compileText = String.raw`
  const compact = [false, -1, undefined, false];
  const textOf = async (schema) => {
    const grammar = await xgrammar.Grammar.fromJSONSchema(schema, ...compact);
    const text = grammar.toString();
    grammar.dispose();
    // The library escapes slashes in constants, which no model does. Changes strings, not character classes.
    const parts = /"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]/g;
    return text.replace(parts, (part) => (part[0] === '"' ? part.replaceAll("\\\\/", "/") : part));
  };
  if (!plan.frames) return compiler.compileGrammar(await textOf(plan.schemas[0]));
  const fit = async (schema) => ({ type: "grammar", grammar: await textOf(schema) });
  // The start rule of a grammar is its last rule; a grammar read from text starts at "root", here a rule of a schema.
  const rooted = (text) => {
    const last = text.trim().split("\n").at(-1).split(" ")[0];
    const parts = /"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|[A-Za-z_]\w*/g;
    return text.replace(parts, (part) => (part === last ? "root" : part === "root" ? "root_of_schema" : part));
  };
  const tags = [];
  for (const [index, { begin, end }] of plan.frames.entries())
    tags.push({ type: "tag", begin, content: await fit(plan.schemas[index]), end });
  const calls = plan.free
    ? { type: "triggered_tags", triggers: [plan.free], tags, at_least_one: false, stop_after_first: plan.once }
    : { type: "tags_with_separator", separator: "\n", tags, at_least_one: true, stop_after_first: plan.once };
  if (!plan.answer) return compiler.compileStructuralTag({ type: "structural_tag", format: calls });
  // A choice cannot have a list of tags as an element, so the list is compiled to a grammar first.
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
 * Source of the worker. Its data is `{vocabulary, stopTokens, size, file, text}`. When it has read the vocabulary it
 * posts `{clock}`, the file with its CPU time, if the system has one. Then it takes plans as messages and answers
 * each with `{ms}`, CPU milliseconds (wall time without a clock), or with `{failure}`. A failure inside WebAssembly
 * leaves the instance unusable: end the worker then.
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
    const lines = [];
    for (const level of ["log", "warn", "error"]) console[level] = (...words) => lines.push(words.join(" "));
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
        // A C++ exception arrives as its address.
        const thrown = String(cause?.message ?? "the library refuses it");
        const fatal = lines.find((line) => line.includes("[FATAL]")) ?? thrown;
        parentPort.postMessage({ failure: fatal.replace(/^\\[FATAL\\] \\S*:\\d+: /, "") });
      }
    });
  `;
}

/** The part of the worker's data that does not depend on the vocabulary. */
export function workerLibrary(): { readonly file: string; readonly text: string } {
  const file = libraryFile();
  return { file, text: libraryText(file) };
}

export type { CompiledGrammar, GrammarCompiler } from "@mlc-ai/web-xgrammar";
