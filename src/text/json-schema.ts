// Prepares a client's JSON schema for a grammar: limits size and depth, drops keywords that have no effect or cost too
// much, and refuses, with its path, what no grammar can express. A dropped keyword is not enforced. An object with
// `properties` and no rule for others gets `additionalProperties: false`.

/** Characters of the schema as JSON. */
const maxCharacters = 64 * 1024;
const maxDepth = 32;
/** With counts beyond this a mask takes hundreds of times as long. */
const maxCount = 256;

const types = new Set(["object", "array", "string", "number", "integer", "boolean", "null"]);
/** Keywords whose values are schemas by name. */
const schemaMaps = new Set(["properties", "patternProperties", "$defs", "definitions"]);
/** Keywords whose values are data, not schemas. */
const data = new Set(["enum", "const", "required", "type", "$ref", "pattern", "format"]);
/** Keywords without effect on what is valid. */
const annotations = new Set([
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

export interface SchemaRefusal {
  /** Keys from the root, joined by dots; "" for the root. */
  readonly path: string;
  /** The reason, in words that follow a colon. */
  readonly sentence: string;
}

export interface PreparedSchema {
  /** JSON text for the grammar compiler. */
  readonly text: string;
  /** Paths of dropped keywords that would have had an effect. */
  readonly dropped: readonly string[];
}

export function grammarSchema(schema: unknown): PreparedSchema | SchemaRefusal {
  const length = JSON.stringify(schema ?? null).length;
  if (length > maxCharacters) {
    return { path: "", sentence: `it has ${length} characters, more than ${maxCharacters}` };
  }
  const preparation = new Preparation(schema);
  const fit = preparation.schema(schema, []);
  return preparation.refusal ?? { text: JSON.stringify(fit), dropped: preparation.dropped };
}

class Preparation {
  refusal: SchemaRefusal | undefined;
  readonly dropped: string[] = [];

  constructor(private readonly root: unknown) {}

  schema(value: unknown, path: readonly string[]): unknown {
    if (typeof value === "boolean") return value;
    if (path.length > maxDepth) return this.#refuse(path, `it is nested more than ${maxDepth} deep`);
    if (Array.isArray(value)) return value.map((item, index) => this.schema(item, [...path, String(index)]));
    if (typeof value !== "object" || value === null) return this.#refuse(path, "a schema must be an object");
    const entries = Object.entries(value).filter(([key, item]) => {
      if (tooMany(key, item)) this.dropped.push([...path, key].join("."));
      return !annotations.has(key) && !tooMany(key, item);
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
    if (schemaMaps.has(key) && typeof value === "object" && value !== null) {
      const members = Object.entries(value).map(([name, item]) => [name, this.schema(item, [...path, name])]);
      return Object.fromEntries(members) as unknown;
    }
    if (key === "type") this.#checkType(value, path);
    if (key === "$ref") this.#checkReference(value, path);
    return data.has(key) || typeof value !== "object" ? value : this.schema(value, path);
  }

  #checkType(value: unknown, path: readonly string[]): void {
    const wrong = (Array.isArray(value) ? value : [value]).find((type) => !types.has(type as string));
    if (wrong !== undefined) this.#refuse(path, `${JSON.stringify(wrong)} is no type of JSON`);
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
      this.#refuse(path, `${JSON.stringify(value)} is not in the schema`);
    }
  }

  /** Keeps the first refusal. */
  #refuse(path: readonly string[], sentence: string): undefined {
    this.refusal ??= { path: path.join("."), sentence };
    return undefined;
  }
}

function tooMany(key: string, value: unknown): boolean {
  return counts.has(key) && typeof value === "number" && value > maxCount;
}

/** Several schemas apply to the same object, so each must allow the properties of the others. */
function composed(schema: object, path: readonly string[]): boolean {
  return path.at(-2) === "allOf" || ["allOf", "anyOf", "oneOf", "$ref"].some((key) => key in schema);
}
