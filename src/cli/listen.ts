// The port and the signals of `pocket serve`. The port is checked before the model is loaded. The first signal closes
// everything in reverse order; the second one ends the process at once.
import { createServer } from "node:net";
import closeWithGrace from "close-with-grace";
import { pocketError } from "../errors.ts";

/** Throws PORT_BUSY; other problems of the address are BAD_CONFIG. */
export async function checkPort(host: string, port: number): Promise<void> {
  const probe = createServer();
  await new Promise<void>((resolve, reject) => {
    probe.once("error", (cause) => reject(listenError(cause, host, port)));
    probe.listen({ host, port, exclusive: true }, resolve);
  });
  await new Promise((resolve) => probe.close(resolve));
}

export function listenError(cause: unknown, host: string, port: number): unknown {
  const { code, message } = cause as NodeJS.ErrnoException;
  if (code === "EADDRINUSE") return pocketError("PORT_BUSY", port, host);
  if (code === "EACCES" || code === "EADDRNOTAVAIL" || code === "ENOTFOUND" || code === "EAI_AGAIN") {
    return pocketError("BAD_CONFIG", `${host}:${port} cannot be listened on: ${message}.`);
  }
  return cause;
}

/**
 * Calls `close` on SIGINT, SIGTERM, SIGHUP or an uncaught failure, then ends the process: 0 after a signal, 1
 * after a failure or when closing takes more than ten seconds.
 */
export function closeOnSignal(close: () => Promise<void>): void {
  const say = (text: string) => process.stderr.write(`pocket: ${text}\n`);
  closeWithGrace(
    {
      delay: 10_000,
      logger: { error: (message: unknown) => say(String(message)) },
      // A JavaScript handler for these would return to the faulting instruction and loop.
      skip: ["SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGABRT", "beforeExit"],
    },
    async ({ signal, err }) => {
      if (err) say(`failed unexpectedly: ${err.message}`);
      else say(`${signal}: closing; once more ends at once`);
      await close();
    },
  );
}
