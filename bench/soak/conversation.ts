// A conversation that a soak's client keeps and keeps changing: grown at the end, and edited anywhere, as agents
// do. Random, from a seed; what it says means nothing.

import type { Message } from "../../src/chat/chat.ts";
import type { Random } from "../../test/support/random.ts";

/** Characters, about a token each: a conversation then holds up to a seventh of the pool. */
const maxCharacters = 500;

/** Long enough that sharing them is worth a fork. */
const systems = ["keeps a house", "sails a ship", "mends a clock"].map(
  (trade): Message => ({ role: "system", content: `You are one who ${trade} and tells the truth about it.` }),
);

export class Conversation {
  #messages: Message[];

  constructor(private readonly random: Random) {
    this.#messages = [this.#pick(systems), this.#said("user")];
  }

  /** Ends with a user message. */
  get messages(): readonly Message[] {
    return this.#messages;
  }

  answered(content: string): void {
    this.#messages.push({ role: "assistant", content });
  }

  /** What an agent does between two requests. */
  turn(): void {
    const edits = [
      () => this.#summarise(),
      () => this.#replace(),
      () => this.#remove(),
      () => this.#insert(),
      () => this.#swap(),
    ];
    if (this.random() < 0.5) this.#pick(edits)();
    if (this.#messages.at(-1)!.role !== "user") this.#messages.push(this.#said("user"));
    while (this.#length > maxCharacters && this.#messages.length > 3) this.#summarise();
    if (this.#length > maxCharacters) this.#messages = [this.#pick(systems), this.#said("user")];
  }

  get #length(): number {
    return this.#messages.reduce((sum, { content }) => sum + content.length, 0);
  }

  /** The oldest messages become one. */
  #summarise(): void {
    const last = 1 + this.#at(this.#messages.length - 1);
    this.#messages.splice(1, last - 1, { role: "user", content: `So far: ${this.#words(4)}` });
  }

  #replace(): void {
    const index = 1 + this.#at(this.#messages.length - 1);
    const { role } = this.#messages[index]!;
    this.#messages[index] = this.#said(role);
  }

  #remove(): void {
    if (this.#messages.length > 3) this.#messages.splice(1 + this.#at(this.#messages.length - 2), 1);
  }

  #insert(): void {
    this.#messages.splice(1 + this.#at(this.#messages.length - 1), 0, this.#said("user"));
  }

  #swap(): void {
    if (this.#messages.length < 4) return;
    const index = 1 + this.#at(this.#messages.length - 2);
    const [first, second] = [this.#messages[index]!, this.#messages[index + 1]!];
    this.#messages.splice(index, 2, second, first);
  }

  #said(role: Message["role"]): Message {
    return { role, content: this.#words(1 + this.#at(20)) };
  }

  #words(count: number): string {
    return Array.from({ length: count }, () => `w${this.#at(1000)}`).join(" ");
  }

  #at(end: number): number {
    return Math.floor(this.random() * end);
  }

  #pick<Item>(items: readonly Item[]): Item {
    return items[this.#at(items.length)]!;
  }
}
