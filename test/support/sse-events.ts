// Reads a whole event stream as text into what was in its `data:` lines, for tests.
export interface Chunk {
  readonly object?: string;
  readonly choices: readonly {
    readonly delta?: { readonly role?: string; readonly content?: string };
    readonly text?: string;
    readonly logprobs?: unknown;
    readonly finish_reason: string | null;
  }[];
  readonly usage?: { readonly prompt_tokens: number } | null;
  readonly pocket?: object;
  readonly timings?: object;
  readonly error?: { readonly code: string; readonly message: string };
}

export function parseStream(body: string): { chunks: Chunk[]; done: boolean; comments: number } {
  const lines = body.split("\n").filter((line) => line !== "");
  const data = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6));
  return {
    chunks: data.filter((line) => line !== "[DONE]").map((line) => JSON.parse(line) as Chunk),
    done: data.at(-1) === "[DONE]",
    comments: lines.filter((line) => line.startsWith(":")).length,
  };
}
