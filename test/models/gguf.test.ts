import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { openGguf } from "../../models/readers/gguf.ts";
import { PocketError } from "../../src/errors.ts";
import { encodeGguf } from "../support/gguf-writer.ts";
import { tinyGguf } from "../support/tiny-model.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "pocket-gguf-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

function open(bytes: Uint8Array) {
  const file = join(folder, "model.gguf");
  writeFileSync(file, bytes);
  const gguf = openGguf(file);
  gguf.close();
  return gguf;
}

function failure(bytes: Uint8Array): unknown {
  try {
    open(bytes);
  } catch (cause) {
    return cause;
  }
  return undefined;
}

const values = new Uint8Array(new Float32Array([1, 2, 3, 4, 5, 6]).buffer);
const small = encodeGguf(
  {
    text: "größer",
    count: 7,
    ratio: { float: 0.5 },
    yes: true,
    words: ["a", "", "c"],
    numbers: [-1, 2],
  },
  [
    { name: "w", dims: [3, 2], type: "F32", bytes: values },
    { name: "b", dims: [1], type: "F32", bytes: values.subarray(0, 4) },
  ],
);
/** Offset of a text in the small file. */
const at = (needle: string) => Buffer.from(small).indexOf(needle);

describe("openGguf", () => {
  it("reads back what the writer wrote: metadata, arrays, tensors and their bytes", () => {
    const file = join(folder, "small.gguf");
    writeFileSync(file, small);
    const gguf = openGguf(file);
    expect(Object.fromEntries(gguf.metadata)).toEqual({
      text: "größer",
      count: 7,
      ratio: 0.5,
      yes: true,
      words: ["a", "", "c"],
      numbers: [-1, 2],
    });
    const w = gguf.tensors.get("w")!;
    expect([w.dims, w.type, w.bytes, w.offset % 32]).toEqual([[3, 2], "F32", 24, 0]);
    expect(gguf.read(w, 12, 24)).toEqual(values.subarray(12, 24));
    gguf.close();
  });

  it("refuses a file truncated anywhere in its head, with the numbers", () => {
    for (let length = 0; length < at("w") + 200 && length < small.length - 28; length++)
      expect(failure(small.subarray(0, length))).toMatchObject({ code: "BAD_GGUF" });
    const cut = failure(small.subarray(0, small.length - 40)) as PocketError;
    expect(cut.message).toMatch(/lies at \[\d+, \d+\), but the file ends at \d+/);
  });

  it("refuses impossible counts before it allocates", () => {
    for (const offset of [8, 16]) {
      const bytes = Buffer.from(small);
      bytes.writeBigUInt64LE(0x7fff_ffff_ffff_ffffn, offset);
      expect(failure(bytes)).toMatchObject({
        code: "BAD_GGUF",
        message: expect.stringContaining("bytes follow"),
      });
    }
    const array = Buffer.from(small);
    array.writeBigUInt64LE(1n << 40n, at("words") + "words".length + 8);
    expect((failure(array) as PocketError).message).toContain(
      "the number of items of 'words' is 1099511627776",
    );
  });

  it("refuses foreign files and versions", () => {
    expect((failure(Buffer.from("PK\x03\x04".padEnd(64))) as PocketError).message).toContain("letters GGUF");
    const old = Buffer.from(small);
    old.writeUInt32LE(1, 4);
    expect((failure(old) as PocketError).message).toContain("version is 1");
  });

  it("names a tensor whose type is not read, and the type", () => {
    const bytes = Buffer.from(small);
    const type = at("w\x02\x00\x00\x00") + 1 + 4 + 16;
    expect(bytes.readUInt32LE(type)).toBe(0);
    bytes.writeUInt32LE(10, type);
    expect(failure(bytes)).toMatchObject({
      code: "UNSUPPORTED_MODEL",
      message: expect.stringContaining("The tensor 'w' has the type Q2_K"),
    });
    bytes.writeUInt32LE(99, type);
    expect((failure(bytes) as PocketError).message).toContain("number 99");
  });

  it("opens a file with any damaged byte, or throws BAD_GGUF or UNSUPPORTED_MODEL", () => {
    const whole = tinyGguf({ layers: 1 });
    fc.assert(
      fc.property(fc.nat(9000), fc.nat(255), (offset, value) => {
        const bytes = Uint8Array.from(whole);
        bytes[offset] = value;
        const cause = failure(bytes);
        if (cause === undefined) return;
        expect(cause).toBeInstanceOf(PocketError);
        expect(["BAD_GGUF", "UNSUPPORTED_MODEL"]).toContain((cause as PocketError).code);
      }),
      { numRuns: 300 },
    );
  });
});
