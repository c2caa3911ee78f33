// A client's JSON schema made fit for a grammar: bounded in size and depth, without what costs much and means
// little, and refused by its path where it says something that no grammar can be made of. What is dropped is no
// longer enforced. One thing is added: an object with properties, and no word on others, has no others.

/** Characters of the schema as JSON. */
const charactersMax = 64 * 1024;
const depthMax = 32;
/** Counts beyond this make grammars of which a mask takes hundreds of times as long. */
const countMax = 256;

const types = new Set(["object", "array", "string", "number", "integer", "boolean", "null"]);
/** Keys whose values are schemas by name. */
const named = new Set(["properties", "patternProperties", "$defs", "definitions"]);
/** Keys whose values are data, not schemas. */
const data = new Set(["enum", "const", "required", "type", "$ref", "pattern", "format"]);
/** Say nothing about what is valid. */
const silent = new Set([
  "$schema",
  "$id",
  "$comment",
  "title",
  "description",
  "default",
  "examples",
  "deprecated",
  "readOnly",
  "writeOnly",
]);
const counts = new Set(["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"]);

export interface SchemaObjection {
  /** Keys from the root, joined by dots; "" for the root. */
  readonly path: string;
  /** Follows a colon. */
  readonly sentence: string;
}

export interface FitSchema {
  /** As the grammar gets it: JSON text. */
  readonly text: string;
  /** Paths of what would matter and is left out. */
  readonly dropped: readonly string[];
}

/** The schema, or what is wrong with it. */
export function grammarSchema(schema: unknown): FitSchema | SchemaObjection {
  const length = JSON.stringify(schema ?? null).length;
  if (length > charactersMax) {
    return { path: "", sentence: `it has ${length} characters, more than ${charactersMax}` };
  }
  const reading = new Reading(schema);
  const fit = reading.schema(schema, []);
  return reading.objection ?? { text: JSON.stringify(fit), dropped: reading.dropped };
}

class Reading {
  objection: SchemaObjection | undefined;
  readonly dropped: string[] = [];

  constructor(private readonly root: unknown) {}

  schema(value: unknown, path: readonly string[]): unknown {
    if (typeof value === "boolean") return value;
    if (path.length > depthMax) return this.#object(path, `it is nested more than ${depthMax} deep`);
    if (Array.isArray(value)) return value.map((item, place) => this.schema(item, [...path, String(place)]));
    if (typeof value !== "object" || value === null) return this.#object(path, "a schema must be an object");
    const entries = Object.entries(value).filter(([key, item]) => {
      if (tooMany(key, item)) this.dropped.push([...path, key].join("."));
      return !silent.has(key) && !tooMany(key, item);
    });
    const fit = entries.map(([key, item]) => [key, this.#member(key, item, [...path, key])] as const);
    const closed =
      !composed(value, path) &&
      "properties" in value &&
      !("additionalProperties" in value) &&
      !("patternProperties" in value);
    return { ...Object.fromEntries(fit), ...(closed && { additionalProperties: false }) };
  }

  #member(key: string, value: unknown, path: readonly string[]): unknown {
    if (named.has(key) && typeof value === "object" && value !== null) {
      const members = Object.entries(value).map(([name, item]) => [name, this.schema(item, [...path, name])]);
      return Object.fromEntries(members) as unknown;
    }
    if (key === "type") this.#checkType(value, path);
    if (key === "$ref") this.#checkReference(value, path);
    return data.has(key) || typeof value !== "object" ? value : this.schema(value, path);
  }

  #checkType(value: unknown, path: readonly string[]): void {
    const wrong = (Array.isArray(value) ? value : [value]).find((type) => !types.has(type as string));
    if (wrong !== undefined) this.#object(path, `${JSON.stringify(wrong)} is no type of JSON`);
  }

  #checkReference(value: unknown, path: readonly string[]): void {
    const steps = typeof value === "string" ? value.split("/") : [];
    let target: unknown = this.root;
    for (const step of steps.slice(1)) {
      const key = step.replaceAll("~1", "/").replaceAll("~0", "~");
      target =
        typeof target === "object" && target !== null && Object.hasOwn(target, key)
          ? (target as Record<string, unknown>)[key]
          : undefined;
    }
    if (steps[0] !== "#" || target === undefined) {
      this.#object(path, `${JSON.stringify(value)} is not in the schema`);
    }
  }

  /** The first one counts. */
  #object(path: readonly string[], sentence: string): undefined {
    this.objection ??= { path: path.join("."), sentence };
    return undefined;
  }
}

function tooMany(key: string, value: unknown): boolean {
  return counts.has(key) && typeof value === "number" && value > countMax;
}

/** One of several schemas for the same object, each of which leaves the properties of the others open. */
function composed(schema: object, path: readonly string[]): boolean {
  return path.at(-2) === "allOf" || ["allOf", "anyOf", "oneOf", "$ref"].some((key) => key in schema);
}
