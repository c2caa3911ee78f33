// What a failed write means.
import { basename } from "node:path";
import { pocketError } from "../../src/errors.ts";

/** A full disk as DISK_FULL; any other failure as it is. */
export function diskError(cause: unknown, file: string): unknown {
  const { code, message } = cause as NodeJS.ErrnoException;
  return code === "ENOSPC" || code === "EDQUOT" ? pocketError("DISK_FULL", basename(file), message) : cause;
}
