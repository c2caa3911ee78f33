// A peer in a process of its own that is asked through its standard input, one JSON object a line, and answers the
// same way. One question at a time. A peer that serves HTTP is a ServerProcess instead.
import { type ChildProcessByStdio, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import { endChild } from "./child-process.ts";

/** Stop it; it does not stop by itself. */
export class PipeProcess {
  readonly #answers: AsyncIterator<string>;
  readonly #said: string[] = [];
  readonly #closed: Promise<unknown>;

  private constructor(private readonly child: ChildProcessByStdio<Writable, Readable, Readable>) {
    child.stderr.on("data", (bytes: Buffer) => {
      this.#said.push(bytes.toString());
      if (this.#said.length > 200) this.#said.shift();
    });
    // Not to be started rejects below; a question to a process that has ended gets no answer, which says so too.
    child.on("error", () => undefined);
    child.stdin.on("error", () => undefined);
    this.#closed = new Promise((resolve) => child.once("close", resolve));
    this.#answers = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  }

  /** Resolves with its first line. Rejects with its last words when it ends before. */
  static async start<Ready>(
    file: string,
    words: readonly string[],
  ): Promise<{ process: PipeProcess; ready: Ready }> {
    const child = spawn(file, words, { stdio: ["pipe", "pipe", "pipe"] });
    const process = new PipeProcess(child);
    await once(child, "spawn");
    try {
      return { process, ready: await process.#next() };
    } catch (cause) {
      await process.stop();
      throw cause;
    }
  }

  /** Rejects with what it called `error`, or with its last words when it ended. */
  async ask<Answer>(question: object): Promise<Answer> {
    this.child.stdin.write(`${JSON.stringify(question)}\n`);
    const answer = await this.#next<Answer & { readonly error?: string }>();
    if (answer.error !== undefined) throw new Error(`${this.child.spawnfile} answered: ${answer.error}`);
    return answer;
  }

  /** Closes its input, and makes it end when it does not; safe to repeat. */
  stop(): Promise<void> {
    return endChild(this.child, () => this.child.stdin.end());
  }

  async #next<Answer>(): Promise<Answer> {
    const { value, done } = await this.#answers.next();
    if (!done) return JSON.parse(value) as Answer;
    // Without its output it is of no use; its last words may still be on their way.
    this.child.kill("SIGKILL");
    await this.#closed;
    throw new Error(`${this.child.spawnfile} ended:\n${this.#said.join("").slice(-2000)}`);
  }
}
