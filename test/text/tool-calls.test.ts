import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { StopStrings } from "../../src/text/stop-strings.ts";
import { type AnswerPart, type ToolCallOptions, ToolCalls } from "../../src/text/tool-calls.ts";

const names = ["ls", "read_file", 'a"b'];

interface Read {
  readonly text: string;
  readonly calls: readonly { readonly name: string; readonly arguments: string }[];
  readonly broken: boolean;
}

/** Puts the parts together as a client does, and checks their order. */
function read(pieces: readonly string[], options: Partial<ToolCallOptions> = {}): Read {
  const parser = new ToolCalls({ names, ...options });
  const parts: AnswerPart[] = [...pieces.flatMap((piece) => parser.push(piece)), ...parser.flush()];
  const whole = pieces.join("");
  let text = "";
  const calls: { name: string; arguments: string }[] = [];
  let ended = 0;
  for (const part of parts) {
    if (part.kind === "text") {
      expect(part.text).toBe(whole.slice(part.start, part.end));
      expect(part.text).not.toBe("");
      text += part.text;
    } else if (part.kind === "call-start") {
      expect(part.index).toBe(calls.length);
      calls.push({ name: part.name, arguments: "" });
    } else if (part.kind === "call-delta") {
      expect(part.index).toBe(calls.length - 1);
      calls[part.index]!.arguments += part.arguments;
    } else {
      expect(part.index).toBe(ended++);
      expect({ name: part.name, arguments: part.arguments }).toEqual(calls[part.index]);
    }
  }
  expect(parser.broken).toBe(calls.length > ended);
  return { text, calls, broken: parser.broken };
}

const call = (name: string, given: string) => ({ name, arguments: given });
const tagged = (name: string, given: string) =>
  `<tool_call>\n{"name": "${name}", "arguments": ${given}}\n</tool_call>`;

describe("calls as the model was taught to write them", () => {
  it("have the name and arguments as written; text around them is content", () => {
    const answer = `I look.\n\n${tagged("ls", '{"path":  "a{\\"}b"}')}\n`;
    expect(read([answer])).toEqual({
      text: "I look.",
      calls: [call("ls", '{"path":  "a{\\"}b"}')],
      broken: false,
    });
  });

  it("may be several, in one tag or in several, and text may follow", () => {
    const two = `${tagged("ls", "{}")}\n${tagged("read_file", '{"a":[1,{"b":2}]}')} done`;
    expect(read([two])).toEqual({
      text: " done",
      calls: [call("ls", "{}"), call("read_file", '{"a":[1,{"b":2}]}')],
      broken: false,
    });
    const one = '<tool_call>{"name":"ls","arguments":{}}\n{"name":"ls","arguments":{"a":1}}</tool_call>';
    expect(read([one]).calls).toEqual([call("ls", "{}"), call("ls", '{"a":1}')]);
  });

  it("may name what was not offered, leave out the arguments, or write them first, as text, or as parameters", () => {
    expect(read([tagged("other", "{}")]).calls).toEqual([call("other", "{}")]);
    expect(read(['<tool_call>{"name": "ls"}</tool_call>']).calls).toEqual([call("ls", "{}")]);
    expect(read(['<tool_call>{"arguments": {"a": 1}, "name": "ls"}</tool_call>']).calls).toEqual([
      call("ls", '{"a":1}'),
    ]);
    expect(read([tagged("ls", '"{\\"a\\": 1}"')]).calls).toEqual([call("ls", '{"a": 1}')]);
    expect(read(['<tool_call>{"name":"ls","parameters":{"a":1},"id":"x"}</tool_call>']).calls).toEqual([
      call("ls", '{"a":1}'),
    ]);
  });

  it("may lack a bracket or the end tag, or have a bracket too many", () => {
    for (const end of ["}", "}}", "", "\n</tool_call>", "}}\n</tool_call>", "}"]) {
      const answer = `<tool_call>\n{"name": "ls", "arguments": {"a": 1}${end}`;
      expect(read([answer])).toEqual({ text: "", calls: [call("ls", '{"a": 1}')], broken: false });
    }
  });

  it("stream their arguments while these are written", () => {
    const parser = new ToolCalls({ names });
    parser.push('<tool_call>\n{"name": "ls", "arguments": {"text": "');
    for (let count = 0; count < 50; count++) {
      expect(parser.push("lorem ")).toEqual([{ kind: "call-delta", index: 0, arguments: "lorem " }]);
    }
  });
});

describe("calls as small models write them", () => {
  it.each([
    ["in a fence", '```json\n{"name": "ls", "arguments": {"a": 1}}\n```'],
    ["in a fence without a language", '```\n{"name": "ls", "arguments": {"a": 1}}\n```'],
    ["bare at the start", '\n{"name": "ls", "arguments": {"a": 1}}'],
    ["in the tag that lists the tools", '<tools>\n{"name": "ls", "arguments": {"a": 1}}\n</tools>'],
  ])("%s are recognised", (_, answer) => {
    expect(read([answer])).toEqual({ text: "", calls: [call("ls", '{"a": 1}')], broken: false });
  });

  it("may be several, bare or in a fence", () => {
    const objects = '{"name": "ls", "arguments": {}}\n{"name": "read_file", "arguments": {"p": "x"}}';
    for (const answer of [objects, `\`\`\`json\n${objects}\n\`\`\``]) {
      expect(read([answer]).calls).toEqual([call("ls", "{}"), call("read_file", '{"p": "x"}')]);
    }
  });

  it("stay text if the tool was not offered or the object is inside an answer", () => {
    for (const answer of [
      '{"name": "other", "arguments": {}}',
      '```json\n{"name": "other", "arguments": {}}\n```\nThat was it.\n',
      'So: {"name": "ls", "arguments": {}}',
      '```python\nprint({"name": "ls"})\n```\n',
      '{"title": "ls"}',
      "{ x: 1 }",
      "[1, 2]",
      "if (a < b) <tool_cal> `x` ``` y",
      "  \n",
    ]) {
      expect(read([answer])).toEqual({ text: answer, calls: [], broken: false });
    }
  });
});

describe("what is malformed", () => {
  it("comes back as text where no arguments had begun", () => {
    for (const answer of [
      "<tool_call>\nnothing\n</tool_call>",
      '<tool_call>\n{"name": "ls", "argu',
      '<tool_call>{"name": 3, "arguments": {}}</tool_call>',
      '<tool_call>{"name": "ls", "arguments": [1]}</tool_call>',
      "<tool_call>",
      "a <tool",
    ]) {
      expect(read([answer])).toEqual({ text: answer, calls: [], broken: false });
    }
  });

  it("is a broken call where the answer ends inside the arguments", () => {
    expect(read(['<tool_call>{"name":"w","arguments":{"a":'])).toEqual({
      text: "",
      calls: [call("w", '{"a":')],
      broken: true,
    });
  });
});

it("what was refused as a call stays refused, whatever follows", () => {
  // The name may go on with an escape, and what stands in front of it is a beginning of no tool's name.
  const answer = `{"name": "<\\${tagged("ls", '{"a": 1}')}`;
  const whole = { text: '{"name": "<\\', calls: [call("ls", '{"a": 1}')], broken: false };
  expect(read([answer])).toEqual(whole);
  expect(read(answer.split(""))).toEqual(whole);
});

it("with maxCalls 1 nothing follows the first call", () => {
  const answer = `${tagged("ls", "{}")}\n${tagged("ls", '{"a":1}')} text`;
  const parser = new ToolCalls({ names, maxCalls: 1 });
  const parts = parser.push(answer);
  expect(parser.full).toBe(true);
  expect(parts.filter(({ kind }) => kind === "call-end")).toHaveLength(1);
  expect([...parser.push("more"), ...parser.flush()]).toEqual([]);
});

// Fragments that answers are made of, whole and cut, so that every state is met in the middle of another.
const fragment = fc.oneof(
  fc.constantFrom(
    "<tool_call>",
    "</tool_call>",
    "<tools>",
    "</tools>",
    "```",
    "```json\n",
    "\n",
    " ",
    "{",
    "}",
    '"',
    "\\",
    ",",
    '{"name": "ls", "arguments": ',
    '{"name": "other", "arguments": {',
    '{"arguments": {"a": "}"}, "name": "ls"}',
    '{"name": "a\\"b", "parameters": {}}',
    '{"a": [1, "{"]}',
    "🫠 text",
    tagged("ls", '{"a": "<tool_call>"}'),
  ),
  fc
    .constantFrom("<tool_call>\n", '{"name": "read_file", "arguments": {}}')
    .chain((text) => fc.nat(text.length).map((length) => text.slice(0, length))),
);

it("calls of taggedOnly tools are text outside the tag", () => {
  const call = '{"name": "ls", "arguments": {}}';
  const forms = [
    `<tool_call>\n${call}\n</tool_call>`,
    call,
    `\`\`\`json\n${call}\n\`\`\``,
    `<tools>${call}</tools>`,
  ];
  const found = (taggedOnly: string[]) => forms.map((form) => read([form], { taggedOnly }).calls.length);
  expect(found([])).toEqual([1, 1, 1, 1]);
  expect(found(["ls"])).toEqual([1, 0, 0, 0]);
  expect(found(["read_file"])).toEqual([1, 1, 1, 1]);
  expect(read([call], { taggedOnly: ["ls"] }).text).toBe(call);
});

it("the result does not depend on how the answer was broken up", () => {
  fc.assert(
    fc.property(
      fc.array(fragment, { maxLength: 12 }),
      fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 8 }),
      fc.constantFrom(undefined, 1),
      (fragments, sizes, maxCalls) => {
        const answer = fragments.join("");
        const options = maxCalls === undefined ? {} : { maxCalls };
        const whole = read([answer], options);
        expect(read(answer.split(""), options)).toEqual(whole);
        const groups: string[] = [];
        for (let at = 0, turn = 0; at < answer.length; turn++) {
          const size = sizes[turn % sizes.length]!;
          groups.push(answer.slice(at, at + size));
          at += size;
        }
        expect(read(groups, options)).toEqual(whole);
        if (whole.calls.length === 0 && maxCalls === undefined) expect(whole.text).toBe(answer);
      },
    ),
    { numRuns: 3000 },
  );
});

it("nor does it with stop strings, which may lie across a call", () => {
  fc.assert(
    fc.property(
      fc.array(fragment, { maxLength: 8 }),
      fc.array(fc.constantFrom("}", "ls", "</tool", "\n", '": ', "call>\n{"), { minLength: 1, maxLength: 2 }),
      (fragments, stops) => {
        const answer = fragments.join("");
        const cut = (pieces: readonly string[]) => {
          const filter = new StopStrings(stops);
          return [...pieces.map((piece) => filter.push(piece)), filter.flush()];
        };
        expect(read(cut(answer.split("")))).toEqual(read([cut([answer]).join("")]));
      },
    ),
    { numRuns: 1000 },
  );
});
