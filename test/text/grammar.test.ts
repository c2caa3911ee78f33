import { afterAll, describe, expect, it } from "vitest";
import { Grammars, type TokenConstraint } from "../../src/text/grammar.ts";
import { grammarSchema } from "../../src/text/json-schema.ts";
import type { GrammarPlan } from "../../src/text/xgrammar.ts";
import { smallText } from "../support/small-tokenizer.ts";

const { tokenizer, stopTokens } = smallText();
const grammars = new Grammars(tokenizer, stopTokens);
afterAll(() => grammars.close());

const endOfTurn = tokenizer.idOf("<|im_end|>")!;

async function start(plan: GrammarPlan): Promise<TokenConstraint> {
  const grammar = await grammars.start(plan);
  if (typeof grammar === "string") throw new Error(grammar);
  return grammar;
}

function allowed(grammar: TokenConstraint): number[] {
  const mask = grammar.mask();
  return Array.from({ length: mask.length * 32 }, (_, id) => id).filter(
    (id) => (mask[id >> 5]! >>> (id & 31)) & 1,
  );
}

function fits(grammar: TokenConstraint, text: string): boolean {
  return Array.from(tokenizer.encodeContent(text)).every((id) => grammar.accept(id));
}

const point = JSON.stringify({
  type: "object",
  properties: { x: { type: "integer" }, s: { enum: ["a", "b"] } },
  required: ["x", "s"],
  additionalProperties: false,
});

describe("a grammar of a schema", () => {
  it("accepts what fits and allows the end only when the object is complete", async () => {
    const grammar = await start({ schemas: [point] });
    expect(allowed(grammar).map((id) => tokenizer.decode([id]))).toEqual(["{"]);
    expect(fits(grammar, '{"x": 12, "s": "a"')).toBe(true);
    expect(allowed(grammar)).not.toContain(endOfTurn);
    expect(fits(grammar, "}")).toBe(true);
    expect(allowed(grammar)).toContain(endOfTurn);
    expect(grammar.terminated).toBe(false);
    expect(grammar.accept(endOfTurn)).toBe(true);
    expect(grammar.terminated).toBe(true);
    grammar.dispose();
    grammar.dispose();
  });

  it("ends with a token that does not fit", async () => {
    const grammar = await start({ schemas: [point] });
    expect(fits(grammar, '{"y')).toBe(false);
    expect(grammar.terminated).toBe(true);
  });

  it("never allows a control token or an unused id, also inside a string", async () => {
    const grammar = await start({ schemas: [JSON.stringify({ type: "string" })] });
    expect(fits(grammar, '"the ')).toBe(true);
    const ids = allowed(grammar);
    expect(ids.length).toBeGreaterThan(100);
    for (const id of ids) expect(tokenizer.bytesOf(id).length).toBeGreaterThan(0);
    for (const { id, special } of tokenizer.addedTokens) expect(ids.includes(id)).toBe(!special);
  });

  it("serves two answers at once with separate state", async () => {
    const [one, two] = [await start({ schemas: [point] }), await start({ schemas: [point] })];
    expect(fits(one, '{"x": 1')).toBe(true);
    expect(fits(two, '{"x": ')).toBe(true);
    expect(allowed(one)).not.toEqual(allowed(two));
  });
});

describe("a grammar of calls", () => {
  const frame = (name: string) => ({
    begin: `<tool_call>\n{"name": "${name}", "arguments": `,
    end: "}\n</tool_call>",
  });
  const frames = [frame("ls"), frame("other")];
  const schemas = [point, JSON.stringify({ type: "object" })];
  const call = '<tool_call>\n{"name": "ls", "arguments": {"x": 1, "s": "b"}}\n</tool_call>';

  it("is one call or several and nothing else, or exactly one", async () => {
    const many = await start({ schemas, frames });
    expect(allowed(many)).not.toContain(endOfTurn);
    expect(fits(many, `${call}\n${call}`)).toBe(true);
    expect(many.accept(endOfTurn)).toBe(true);
    const once = await start({ schemas, frames, once: true });
    expect(fits(once, call)).toBe(true);
    expect(allowed(once)).toEqual([...stopTokens].sort((a, b) => a - b));
    expect(fits(await start({ schemas, frames }), "Hello")).toBe(false);
    expect(fits(await start({ schemas, frames }), call.replace("ls", "rm"))).toBe(false);
  });

  it("allows calls within any text", async () => {
    const free = await start({ schemas, frames, free: "<tool_call>" });
    expect(allowed(free)).toContain(endOfTurn);
    expect(fits(free, `I look: ${call} Done.`)).toBe(true);
    expect(free.accept(endOfTurn)).toBe(true);
    const wrong = await start({ schemas, frames, free: "<tool_call>" });
    expect(fits(wrong, call.replace('"b"', '"c"'))).toBe(false);
  });
});

it("constants have slashes as models write them, and texts may have them either way", async () => {
  const properties = {
    path: { enum: ["src/a.ts", 'q"\\/x'] },
    name: { type: "string" },
    rule: { type: "string", pattern: "^[/y]x/$" },
  };
  const schema = {
    type: "object",
    properties,
    required: ["path", "name", "rule"],
    additionalProperties: false,
  };
  const grammar = () => start({ schemas: [JSON.stringify(schema)] });
  const written = (path: string, name: string, rule: string) =>
    `{"path": ${path}, "name": ${name}, "rule": ${rule}}`;
  expect(fits(await grammar(), written('"src/a.ts"', '"a/b\\/c"', '"/x/"'))).toBe(true);
  expect(fits(await grammar(), written(JSON.stringify('q"\\/x'), '""', '"yx/"'))).toBe(true);
  expect(fits(await grammar(), written('"src/b.ts"', '""', '"/x/"'))).toBe(false);
  expect(fits(await grammar(), written('"src/a.ts"', '""', '"ax/"'))).toBe(false);
});

it("an answer or calls: one of the two, whole", async () => {
  const frames = [{ begin: '<tool_call>\n{"name": "ls", "arguments": ', end: "}\n</tool_call>" }];
  const grammar = () => start({ schemas: ['{"type":"object"}'], frames, answer: point });
  expect(fits(await grammar(), '{"x": 1, "s": "a"}')).toBe(true);
  const call = '<tool_call>\n{"name": "ls", "arguments": {"a": 1}}\n</tool_call>';
  const calls = await grammar();
  expect(fits(calls, call)).toBe(true);
  expect(allowed(calls)).toContain(endOfTurn);
  expect(fits(calls, `\n${call}`)).toBe(true);
  expect(fits(await grammar(), 'Well, {"x": 1, "s": "a"}')).toBe(false);
  expect(fits(await grammar(), '{"z": 1}')).toBe(false);
});

describe("a schema that no grammar can be made of", () => {
  it("is refused with a reason, and the next one is served", async () => {
    expect(await grammars.start({ schemas: ['{"type":"strange"}'] })).toMatch(/Unsupported type "strange"/);
    expect(await grammars.start({ schemas: ['{"$ref":"#/nowhere"}'] })).toMatch(/nowhere/);
    expect(typeof (await grammars.start({ schemas: [point] }))).toBe("object");
  });

  it("is refused when it takes too long, and the worker is ended", async () => {
    // Seconds of computing on any machine, against a hundredth of one.
    const names = Array.from({ length: 40 }, (_, place) => `property${place}`);
    const properties = Object.fromEntries(names.map((name) => [name, { type: "string", maxLength: 200 }]));
    const long = JSON.stringify({ type: "object", properties, required: names });
    const hasty = new Grammars(tokenizer, stopTokens, 10);
    expect(await hasty.start({ schemas: [long] })).toMatch(/not compiled within 10 ms|more than 10$/);
    hasty.close();
  });

  it("is refused with its path where it is known", () => {
    const refused = (schema: unknown) => grammarSchema(schema);
    expect(refused({ properties: { a: { items: { type: "strange" } } } })).toEqual({
      path: "properties.a.items.type",
      sentence: '"strange" is no type of JSON',
    });
    expect(refused({ properties: { a: { $ref: "#/$defs/b" } }, $defs: { a: {} } })).toMatchObject({
      path: "properties.a.$ref",
    });
    expect(refused({ properties: { a: 3 } })).toMatchObject({ path: "properties.a" });
    let deep: object = { type: "string" };
    for (let depth = 0; depth < 40; depth++) deep = { items: deep };
    expect(refused(deep)).toMatchObject({ sentence: expect.stringContaining("32 deep") });
    expect(refused({ enum: ["x".repeat(70_000)] })).toMatchObject({ path: "" });
  });

  it("drops keywords that cost too much or have no effect, and keeps properties of the same names", () => {
    const schema = {
      $schema: "x",
      description: "d",
      properties: {
        description: { type: "string", maxLength: 2000, minLength: 2, default: "a" },
        a: { $ref: "#/$defs/t" },
      },
      $defs: { t: { type: ["string", "null"], title: "T" } },
    };
    expect(JSON.parse((grammarSchema(schema) as { text: string }).text)).toEqual({
      properties: { description: { type: "string", minLength: 2 }, a: { $ref: "#/$defs/t" } },
      $defs: { t: { type: ["string", "null"] } },
      additionalProperties: false,
    });
  });
});
