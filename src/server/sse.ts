// A server-sent event stream on a hijacked reply: headers, data lines, keep-alive comments, end. A comment is sent
// regularly so that clients and proxies do not time out during a long prefill.
import type { OutgoingHttpHeaders, ServerResponse } from "node:http";
import type { FastifyReply } from "fastify";

export class EventStream {
  private readonly response: ServerResponse;
  private readonly heartbeat: NodeJS.Timeout;

  /** Sends the headers at once. From here on fastify no longer owns the reply. */
  constructor(reply: FastifyReply, keepAliveMs: number) {
    reply.hijack();
    this.response = reply.raw;
    this.response.writeHead(200, {
      ...(reply.getHeaders() as OutgoingHttpHeaders),
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-cache, no-transform",
      "x-accel-buffering": "no",
    });
    this.response.flushHeaders();
    // A write to a dead socket is not an error here: middleware/abort.ts sees it close.
    this.response.on("error", () => {});
    this.heartbeat = setInterval(() => {
      if (this.isOpen && !this.response.writableNeedDrain) this.response.write(": waiting\n\n");
    }, keepAliveMs);
  }

  get isOpen(): boolean {
    return !this.response.destroyed && !this.response.writableEnded;
  }

  /** Resolves when the socket can take more, so that a slow reader slows down its own answer only. */
  async send(data: object | "[DONE]"): Promise<void> {
    if (!this.isOpen) return;
    const text = typeof data === "string" ? data : JSON.stringify(data);
    if (this.response.write(`data: ${text}\n\n`)) return;
    await new Promise<void>((resolve) => {
      const done = () => {
        this.response.off("drain", done).off("close", done);
        resolve();
      };
      this.response.once("drain", done).once("close", done);
    });
  }

  /** Idempotent. */
  end(): void {
    clearInterval(this.heartbeat);
    if (this.isOpen) this.response.end();
  }
}
