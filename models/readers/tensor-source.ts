// The tensors of a GGUF file for a family: by name, checked against the expected shape, written to weights.bin. It records
// which tensors were used: an unused one means that the graph would compute another model, and the import is refused.
// Methods are asynchronous only so that signals and the progress bar are served between tensors.
import { basename } from "node:path";
import { setImmediate } from "node:timers/promises";
import { pocketError } from "../../src/errors.ts";
import { type StoredMatrix, type StoredVector, uninterleave, type WeightsWriter } from "../graph/weights.ts";
import { dequantise } from "../quantisation/dequantise.ts";
import type { MatrixRole } from "../quantisation/weight-formats.ts";
import type { Gguf, GgufTensor } from "./gguf.ts";

export class TensorSource {
  private readonly used = new Set<string>();

  constructor(
    private readonly gguf: Gguf,
    private readonly writer: WeightsWriter,
    /** Called after each tensor with its bytes in the file. May throw to stop the import. */
    private readonly onTensor: (bytes: number) => void,
  ) {}

  has(name: string): boolean {
    return this.gguf.tensors.has(name);
  }

  async vector(name: string, length: number, interleavedHeads = 0): Promise<StoredVector> {
    const tensor = this.use(name, [length]);
    const stored = this.writer.vector(tensor, interleavedHeads);
    await this.report(tensor);
    return stored;
  }

  async matrix(
    name: string,
    shape: { rows: number; columns: number },
    options: { role?: MatrixRole; interleavedHeads?: number } = {},
  ): Promise<StoredMatrix> {
    const tensor = this.use(name, [shape.columns, shape.rows]);
    const stored = this.writer.matrix(tensor, options.role ?? "linear", options.interleavedHeads);
    await this.report(tensor);
    return stored;
  }

  /** The tensor dequantised, `interleavedHeads` as for a matrix. Does not count as using it. */
  values(name: string, interleavedHeads = 0): Float32Array {
    const tensor = this.find(name);
    const count = tensor.dims.reduce((product, size) => product * size, 1);
    const bytes = this.gguf.read(tensor, 0, tensor.bytes);
    return dequantise(tensor.type, uninterleave(bytes, interleavedHeads, tensor.dims.at(-1)!), count);
  }

  /** Throws UNSUPPORTED_MODEL when the file has a tensor that the family did not use. */
  refuseUnused(family: string): void {
    const left = [...this.gguf.tensors.keys()].filter((name) => !this.used.has(name));
    if (left.length === 0) return;
    const sentence = `The file has ${left.length} tensors that a plain ${family} model does not (first: '${left[0]}').`;
    throw pocketError("UNSUPPORTED_MODEL", sentence);
  }

  private find(name: string): GgufTensor {
    const tensor = this.gguf.tensors.get(name);
    if (!tensor) throw this.broken(`it has no tensor '${name}'`);
    return tensor;
  }

  private use(name: string, dims: readonly number[]): GgufTensor {
    const tensor = this.find(name);
    if (tensor.dims.length !== dims.length || dims.some((size, d) => size !== tensor.dims[d]))
      throw this.broken(`the tensor '${name}' is [${tensor.dims}]; the metadata asks for [${dims}]`);
    this.used.add(name);
    return tensor;
  }

  private async report(tensor: GgufTensor): Promise<void> {
    this.onTensor(tensor.bytes);
    await setImmediate();
  }

  private broken(why: string): Error {
    return pocketError("BAD_GGUF", basename(this.gguf.file), why);
  }
}
