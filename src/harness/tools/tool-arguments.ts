// Arguments of a workspace tool, read with suspicion: a model wrote them. What is wrong with them, and whatever a
// tool will not do, is a sentence for the model, thrown as Refused and turned into the tool's result in one place.
import type { Tool } from "../../chat/chat.ts";
import type { AgentTool } from "../tool.ts";

/** A sentence for the model. Never leaves a tool made by `agentTool`. */
export class Refused extends Error {}

/** A field of a call's arguments. A number may be written as text, since small models do. */
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

/** What `run` returns, and the sentence of what it refuses, is the result; anything else it throws stays thrown. */
export function agentTool<const Fields extends Readonly<Record<string, Field>>>(
  spec: { readonly name: string; readonly description: string; readonly fields: Fields },
  run: (given: Given<Fields>, signal: AbortSignal) => string | Promise<string>,
  fresh?: AgentTool["fresh"],
): AgentTool {
  const { name, description, fields } = spec;
  return {
    ...(fresh && { fresh }),
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
  let given: unknown;
  try {
    given = JSON.parse(json.trim() === "" ? "{}" : json);
  } catch {
    throw new Refused(`The arguments are not JSON; they have the form ${form}. Call again.`);
  }
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    throw new Refused(`The arguments must be an object of the form ${form}. Call again.`);
  }
  const values = given as Record<string, unknown>;
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
