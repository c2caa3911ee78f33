// native/runtime/ort_api.h has the index of each function that it calls in ONNX Runtime's API table. Where an official
// onnxruntime_c_api.h is installed (or ORT_HEADER names one), the indexes are compared with it.
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";

const declared = readFileSync(
  fileURLToPath(new URL("../../native/runtime/ort_api.h", import.meta.url)),
  "utf8",
);
const official = [
  process.env.ORT_HEADER ?? "",
  ...["/usr/include", "/usr/local/include", "/opt/onnxruntime/include"].flatMap((folder) => [
    `${folder}/onnxruntime_c_api.h`,
    `${folder}/onnxruntime/onnxruntime_c_api.h`,
    `${folder}/onnxruntime/core/session/onnxruntime_c_api.h`,
  ]),
].find((path) => path !== "" && existsSync(path));

/** X(slot, name, …) of ort_api.h. */
function declaredSlots(text: string): Map<string, number> {
  return new Map([...text.matchAll(/^\s*X\((\d+), (\w+),/gm)].map(([, slot, name]) => [name!, Number(slot)]));
}

/** Members of struct OrtApi in order: one table entry each, however they are declared. */
function officialSlots(header: string): Map<string, number> {
  const plain = header.replace(/\/\*[\s\S]*?\*\//g, "").replace(/\/\/.*$/gm, "");
  const body = plain.slice(plain.search(/struct OrtApi \{/)).split(/^\};/m)[0]!;
  const member = /ORT_API2_STATUS\(\s*(\w+)|ORT_CLASS_RELEASE2?\(\s*(\w+)|\(\s*ORT_API_CALL\s*\*\s*(\w+)\)/g;
  const names = [...body.matchAll(member)].map(
    ([, status, released, plainName]) => status ?? plainName ?? `Release${released}`,
  );
  return new Map(names.map((name, slot) => [name, slot]));
}

describe("the API table of ONNX Runtime", () => {
  test("is read member by member, without comments", () => {
    const header = `
      struct OrtOther { ORT_API2_STATUS(Before, int x); };
      struct OrtApi {
        OrtStatus*(ORT_API_CALL* CreateStatus)(OrtErrorCode code, const char* message)NO_EXCEPTION; // (ORT_API_CALL* No)
        /* ORT_API2_STATUS(Never, int); */
        ORT_API2_STATUS(CreateEnv, OrtLoggingLevel level);
        ORT_CLASS_RELEASE(Env);
        ORT_API2_STATUS(
            Run, int x);
};
      struct After { ORT_API2_STATUS(Later, int x); };`;
    expect([...officialSlots(header).keys()]).toEqual(["CreateStatus", "CreateEnv", "ReleaseEnv", "Run"]);
  });

  test("has each declared entry once, at rising indexes", () => {
    const slots = [...declaredSlots(declared).values()];
    expect(slots.length).toBeGreaterThan(40);
    expect(slots).toEqual([...new Set(slots)].sort((a, b) => a - b));
  });

  test("has the indexes of the official header", (context) => {
    if (official === undefined)
      return context.skip("no onnxruntime_c_api.h is installed; set ORT_HEADER to one");
    const slots = officialSlots(readFileSync(official, "utf8"));
    for (const [name, slot] of declaredSlots(declared)) expect([name, slots.get(name)]).toEqual([name, slot]);
  });
});
