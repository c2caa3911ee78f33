// native/runtime/ort_api.h gives the position of each entry that it calls in ONNX Runtime's API table. Where an official
// onnxruntime_c_api.h is installed (or ORT_HEADER names one), the positions are counted in it and compared.
import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";

const ours = readFileSync(fileURLToPath(new URL("../../native/runtime/ort_api.h", import.meta.url)), "utf8");
const official = [
  process.env.ORT_HEADER ?? "",
  ...["/usr/include", "/usr/local/include", "/opt/onnxruntime/include"].flatMap((folder) => [
    `${folder}/onnxruntime_c_api.h`,
    `${folder}/onnxruntime/onnxruntime_c_api.h`,
    `${folder}/onnxruntime/core/session/onnxruntime_c_api.h`,
  ]),
].find((path) => path !== "" && existsSync(path));

/** X(slot, name, …) of our list. */
function ourSlots(text: string): Map<string, number> {
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
  test("is counted member by member, comments left out", () => {
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

  test("has each entry of ours once, in rising positions", () => {
    const slots = [...ourSlots(ours).values()];
    expect(slots.length).toBeGreaterThan(40);
    expect(slots).toEqual([...new Set(slots)].sort((a, b) => a - b));
  });

  test("has the positions of the official header", (context) => {
    if (official === undefined)
      return context.skip("no onnxruntime_c_api.h is installed; set ORT_HEADER to one");
    const theirs = officialSlots(readFileSync(official, "utf8"));
    for (const [name, slot] of ourSlots(ours)) expect([name, theirs.get(name)]).toEqual([name, slot]);
  });
});
