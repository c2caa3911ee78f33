// What a chat template is given, by shape: the messages and tools of the Chat port fit as they are. Declared
// here because this room stands below the one where messages live and may not import it.

export type Role = "system" | "user" | "assistant" | "tool";

export interface PromptMessage {
  readonly role: Role;
  readonly content: string;
  readonly reasoning?: string;
  readonly toolCalls?: readonly {
    readonly id: string;
    readonly name: string;
    /** JSON text. */
    readonly arguments: string;
  }[];
  readonly toolCallId?: string;
  readonly name?: string;
}

export interface PromptTool {
  readonly name: string;
  readonly description?: string;
  readonly parameters?: unknown;
}

/** A stretch of a rendered prompt. */
export interface Piece {
  /** "content" came from a message or a tool: it is encoded without control tokens. */
  readonly kind: "template" | "content";
  readonly text: string;
  /** The message whose whole content this is; undefined for anything else. */
  readonly message: number | undefined;
}
