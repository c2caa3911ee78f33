// Errors of failed writes.
import { basename } from "node:path";
import { pocketError } from "../../src/errors.ts";

/** DISK_FULL for a full disk or quota; any other cause unchanged. */
export function diskError(cause: unknown, file: string): unknown {
  const { code, message } = cause as NodeJS.ErrnoException;
  return code === "ENOSPC" || code === "EDQUOT" ? pocketError("DISK_FULL", basename(file), message) : cause;
}
