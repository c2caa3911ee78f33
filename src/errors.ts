// The table of errors: code, HTTP status, message template, hint. C++ throws the same codes. The message says what
// happened, with numbers; the hint says what to do. Three kinds: a refusal is text for the model and is never thrown; an
// operating error has a status; a broken invariant marks the engine broken until the process restarts.

interface Row {
  readonly status: number;
  readonly template: string;
  readonly hint: string;
}

export const errorTable = {
  // wire
  BAD_REQUEST: { status: 400, template: "%s", hint: "Correct the named field and send the request again." },
  MALFORMED_JSON: {
    status: 400,
    template: "The body is not valid JSON: %s.",
    hint: "Send one JSON object with content-type application/json.",
  },
  CONTEXT_LENGTH_EXCEEDED: {
    status: 400,
    template: "This model's maximum context length is %s tokens. However, you requested %s tokens (%s).",
    hint: "Shorten or compact the messages, or lower max_tokens.",
  },
  NOT_FOUND: { status: 404, template: "%s", hint: "See GET /v1/models and the README for what exists." },
  MODEL_NOT_FOUND: {
    status: 404,
    template: "The model '%s' is not served here; this server has %s.",
    hint: "Use a served id, or start the server with --model.",
  },
  METHOD_NOT_ALLOWED: {
    status: 405,
    template: "%s",
    hint: "See the README for the routes and their methods.",
  },
  PAYLOAD_TOO_LARGE: {
    status: 413,
    template: "The body is larger than %s bytes.",
    hint: "Send less, or raise server.body_limit.",
  },
  FORBIDDEN: { status: 403, template: "%s", hint: "Add the host or origin to server.allowed_hosts." },
  UNAUTHORIZED: {
    status: 401,
    template: "A valid API key is needed.",
    hint: "Send it as 'Authorization: Bearer …' or 'x-api-key'.",
  },
  INTERNAL: { status: 500, template: "%s", hint: "The server's log has the details; report them." },
  SESSION_NOT_FOUND: {
    status: 404,
    template: "There is no session '%s'.",
    hint: "Sessions are made by their first request.",
  },
  // engine
  CACHE_FULL: {
    status: 503,
    template: "The cache has %s free pages of %s tokens; this request needs %s.",
    hint: "Raise cache.tokens, shorten the prompt, or release a session.",
  },
  CACHE_TOO_SMALL: {
    status: 503,
    template: "This request needs %s tokens of cache; the whole pool holds %s.",
    hint: "Raise cache.tokens (--cache-tokens) or shorten the prompt.",
  },
  ENGINE_BUSY: { status: 503, template: "The engine is in a step; %s.", hint: "Wait for the step to end." },
  ENGINE_BROKEN: {
    status: 500,
    template: "The engine has been broken since %s: %s.",
    hint: "Restart the server and report the message.",
  },
  ENGINE_CLOSED: { status: 503, template: "The engine is closed.", hint: "The server is shutting down." },
  QUEUE_FULL: {
    status: 429,
    template: "%s requests are waiting already, as many as server.queue allows.",
    hint: "Try again after the time in Retry-After.",
  },
  CANCELLED: { status: 499, template: "The client went away.", hint: "Nothing to do." },
  BAD_ARGUMENT: {
    status: 500,
    template: "%s",
    hint: "This is a bug in the server; report it.",
  },
  BROKEN_LOGITS: {
    status: 500,
    template: "The model gave no finite logit: %s.",
    hint: "The weights may be damaged; import the model again.",
  },
  OUT_OF_MEMORY: {
    status: 503,
    template: "%s bytes could not be allocated for %s.",
    hint: "Lower cache.tokens or free memory.",
  },
  RUNTIME_MISSING: {
    status: 500,
    template: "ONNX Runtime could not be opened from %s: %s.",
    hint: "Run npm ci again; the library comes with onnxruntime-node.",
  },
  RUNTIME_FAILED: {
    status: 500,
    template: "ONNX Runtime: %s",
    hint: "Report the message with the model's id.",
  },
  ADDON_MISSING: {
    status: 500,
    template: "The native addon could not be loaded from %s: %s.",
    hint: "Run scripts/start or npm run build:addon.",
  },
  KV_FILE_REFUSED: {
    status: 500,
    template: "The file %s is not used: %s.",
    hint: "Its sessions are recomputed. Delete the file.",
  },
  KV_FILE_UNWRITABLE: {
    status: 500,
    template: "%s could not be written: %s.",
    hint: "Check the permissions of the folder; the cells stay in the pool until they are evicted.",
  },
  // text
  BAD_TEMPLATE: {
    status: 400,
    template: "The chat template refused the messages: %s.",
    hint: "Check roles and order of the messages.",
  },
  BAD_SCHEMA: {
    status: 400,
    template: "Answers cannot be constrained to the schema in %s: %s.",
    hint: "Simplify the schema, or omit strict.",
  },
  // models
  MODEL_UNKNOWN: {
    status: 404,
    template: "There is no model '%s' in the registry; it has %s.",
    hint: "See pocket ls.",
  },
  MODEL_NOT_IMPORTED: {
    status: 404,
    template: "The model '%s' is not in %s.",
    hint: "Run pocket pull for it first.",
  },
  MODEL_OUTDATED: {
    status: 409,
    template:
      "The model '%s' in %s was imported by an earlier version (manifest format %s, this one reads %s).",
    hint: "Run pocket pull for it (a download that is here is used again), or pocket import for a file of your own.",
  },
  FETCH_FAILED: {
    status: 502,
    template: "%s could not be fetched: %s.",
    hint: "Check the network and try again; a partial download is resumed.",
  },
  DIGEST_MISMATCH: {
    status: 502,
    template: "%s has SHA-256 %s; the publisher's is %s. The file was deleted.",
    hint: "Fetch it again; if it happens twice, do not trust the source.",
  },
  BAD_GGUF: {
    status: 400,
    template: "%s is not a usable GGUF file: %s.",
    hint: "Fetch the file again or pick another one.",
  },
  UNSUPPORTED_MODEL: { status: 400, template: "%s", hint: "models/README.md lists what is served and why." },
  BAD_MANIFEST: {
    status: 500,
    template: "%s is not a manifest that this version reads: %s.",
    hint: "Import the model again.",
  },
  DISK_FULL: {
    status: 507,
    template: "%s could not be written: %s.",
    hint: "Free disk space or set POCKET_CACHE to a larger disk.",
  },
  SERVER_FAILED: {
    status: 502,
    template: "The server at %s failed: %s.",
    hint: "Check that it runs and that the URL ends in its version, such as /v1.",
  },
  // runs
  STORE_UNUSABLE: {
    status: 500,
    template: "The store of runs %s cannot be used: %s.",
    hint: "Move the file away, or use the version of Pocket that made it.",
  },
  STORE_FAILED: {
    status: 507,
    template: "The store of runs %s could not be written: %s.",
    hint: "Free disk space, then resume the run; it is complete up to here.",
  },
  RUN_EXISTS: { status: 409, template: "There is a run '%s' in %s.", hint: "Resume it or take another id." },
  RUN_NOT_FOUND: { status: 404, template: "There is no run '%s' in %s.", hint: "See pocket runs ls." },
  RUN_DAMAGED: {
    status: 500,
    template: "The run '%s' cannot be read: %s.",
    hint: "See pocket runs check; pocket runs export still writes what is there.",
  },
  RUN_ANSWERED: {
    status: 409,
    template: "The run '%s' has its answer already.",
    hint: "Give it something more to do when you resume it.",
  },
  RUN_BUSY: { status: 409, template: "The run '%s' is running.", hint: "Wait for it, or cancel it first." },
  RUN_INTERRUPTED: {
    status: 499,
    template: "The run '%s' was interrupted.",
    hint: "Resume it; every complete exchange is kept.",
  },
  BAD_RECORDING: {
    status: 400,
    template: "%s is not a recorded run: %s.",
    hint: "A recording is what pocket runs export writes.",
  },
  MCP_FAILED: {
    status: 502,
    template: "The MCP server '%s' cannot be used: %s.",
    hint: "Check its command or URL, and that @modelcontextprotocol/sdk is installed.",
  },
  AGENT_OFF: {
    status: 404,
    template: "Agent runs are off on this server, because an agent has a shell.",
    hint: "Start the server with agent.enabled (--agent-enabled).",
  },
  AGENT_NEEDS_KEY: {
    status: 403,
    template: "Agent runs need an API key, also on loopback, because an agent has a shell.",
    hint: "Set server.api_key, or agent.without_key if every user of this machine may run commands.",
  },
  // start
  BAD_CONFIG: {
    status: 400,
    template: "%s",
    hint: "pocket config shows every key, its value and its source.",
  },
  INTERRUPTED: {
    status: 499,
    template: "%s was interrupted.",
    hint: "Run it again; the download is resumed.",
  },
  PORT_BUSY: {
    status: 500,
    template: "Port %s on %s is in use.",
    hint: "Stop the other program or pass --port.",
  },
} as const satisfies Record<string, Row>;

export type ErrorCode = keyof typeof errorTable;

/** An operating error of the table. `message` is the filled template plus the hint. */
export class PocketError extends Error {
  override readonly name = "PocketError";
  readonly status: number;

  constructor(
    readonly code: ErrorCode,
    readonly detail: string,
    /** The request field at fault, as a path such as `messages.2.content`. */
    readonly param?: string,
  ) {
    super(`${detail} ${errorTable[code].hint}`);
    this.status = errorTable[code].status;
  }
}

/** Fills the template of `code` in order; there must be as many values as `%s`. */
export function pocketError(code: ErrorCode, ...values: readonly (string | number)[]): PocketError {
  let next = 0;
  const detail = errorTable[code].template.replaceAll("%s", () => String(values[next++]));
  return new PocketError(code, detail);
}

export function isErrorCode(code: unknown): code is ErrorCode {
  return typeof code === "string" && Object.hasOwn(errorTable, code);
}
