// Validates the arguments that a model wrote for a workspace tool. Invalid arguments, and requests that a
// tool refuses, are thrown as Refused; `agentTool` turns its message into the tool's result.
import type { Tool } from "../../chat/chat.ts";
import { parseArguments } from "../../context/tools.ts";
import type { AgentTool } from "../tool.ts";

/** Its message is a sentence for the model. A tool made by `agentTool` never throws it. */
export class Refused extends Error {}

/** A field of a call's arguments. An integer may be given as text, because small models do so. */
export interface Field {
  readonly type: "string" | "integer";
  readonly description: string;
  readonly optional?: true;
}

type Given<Fields extends Readonly<Record<string, Field>>> = {
  readonly [Name in keyof Fields]:
    | (Fields[Name]["type"] extends "string" ? string : number)
    | (Fields[Name] extends { readonly optional: true } ? undefined : never);
};

/**
 * Makes a tool whose result is what `run` returns or the message of a Refused that it throws. Other errors
 * pass.
 */
export function agentTool<const Fields extends Readonly<Record<string, Field>>>(
  spec: { readonly name: string; readonly description: string; readonly fields: Fields },
  run: (given: Given<Fields>, signal: AbortSignal) => string | Promise<string>,
  remaining?: AgentTool["remaining"],
): AgentTool {
  const { name, description, fields } = spec;
  return {
    ...(remaining && { remaining }),
    spec: { name, description, parameters: schemaOf(fields) },
    async run(json, signal) {
      try {
        return await run(readFields(json, fields) as Given<Fields>, signal);
      } catch (cause) {
        if (cause instanceof Refused) return cause.message;
        throw cause;
      }
    },
  };
}

function schemaOf(fields: Readonly<Record<string, Field>>): Tool["parameters"] {
  const entries = Object.entries(fields);
  return {
    type: "object",
    properties: Object.fromEntries(
      entries.map(([name, { type, description }]) => [name, { type, description }]),
    ),
    required: entries.filter(([, { optional }]) => !optional).map(([name]) => name),
    additionalProperties: false,
  };
}

function readFields(json: string, fields: Readonly<Record<string, Field>>): Record<string, unknown> {
  const form = `{${Object.entries(fields)
    .map(([name, { optional }]) => `${name}${optional ? "?" : ""}`)
    .join(", ")}}`;
  const read = parseArguments(json.trim() === "" ? "{}" : json, form);
  if ("refusal" in read) throw new Refused(read.refusal);
  const values = read.fields;
  const unknown = Object.keys(values).filter((name) => !Object.hasOwn(fields, name));
  if (unknown.length > 0)
    throw new Refused(`There is no argument ${unknown.join(", ")}; the form is ${form}. Call again.`);
  return Object.fromEntries(
    Object.entries(fields).map(([name, field]) => [name, readField(name, values[name], field, form)]),
  );
}

function readField(name: string, value: unknown, { type, optional }: Field, form: string): unknown {
  if (value === undefined || value === null) {
    if (optional) return undefined;
    throw new Refused(`${name} is missing: ${form}. Call again.`);
  }
  if (type === "string") {
    if (typeof value === "string") return value;
    throw new Refused(`${name} must be text: ${form}. Call again.`);
  }
  const number = typeof value === "string" && value.trim() !== "" ? Number(value) : value;
  if (Number.isInteger(number)) return number;
  throw new Refused(`${name} must be a whole number: ${form}. Call again.`);
}
