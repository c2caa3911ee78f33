// For faults that this stack cannot have: the line says why, is printed, and is listed like a test. When the
// reason stops being true, the line has to become a test.
import { test } from "vitest";

export function doesNotApply(fault: number, reason: string): void {
  const name = `fault ${fault}: does not apply: ${reason}`;
  process.stdout.write(`skipped: ${name}\n`);
  test.skip(name, () => undefined);
}
