// Half-precision numbers as GGUF stores them: f16 (IEEE binary16) and bf16 (the upper half of an f32). Node 20 has no
// Float16Array; a table of all 65,536 values is faster than computing them.

/** The f32 value of each f16 bit pattern. */
export const f16Values: Float32Array = tabulate();

/** The nearest f16 of x, ties to even; overflow gives infinity. */
export function f16Bits(x: number): number {
  const magnitude = Math.abs(x);
  const sign = x < 0 || Object.is(x, -0) ? 0x8000 : 0;
  if (Number.isNaN(x)) return 0x7e00;
  if (magnitude >= 65520) return sign | 0x7c00;
  const exponent = magnitude < 2 ** -14 ? -14 : Math.floor(Math.log2(magnitude));
  // One step of the mantissa at this exponent; a mantissa that rounds up to the next power of two carries into the exponent.
  const steps = roundToEven(magnitude / 2 ** (exponent - 10));
  return sign | (((exponent + 14) << 10) + steps);
}

/** The nearest bf16 of x, ties to even. x is finite. */
export function bf16Bits(x: number): number {
  word.setFloat32(0, x);
  const bits = word.getUint32(0);
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

/** The f32 value of a bf16 bit pattern. */
export function bf16Value(bits: number): number {
  word.setUint32(0, bits * 0x10000);
  return word.getFloat32(0);
}

const word = new DataView(new ArrayBuffer(4));

function roundToEven(x: number): number {
  const below = Math.floor(x);
  const rest = x - below;
  if (rest !== 0.5) return Math.round(x);
  return below % 2 === 0 ? below : below + 1;
}

function tabulate(): Float32Array {
  const table = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 31;
    const mantissa = bits & 1023;
    if (exponent === 31) table[bits] = mantissa ? Number.NaN : sign * Number.POSITIVE_INFINITY;
    else if (exponent === 0) table[bits] = sign * mantissa * 2 ** -24;
    else table[bits] = sign * (1024 + mantissa) * 2 ** (exponent - 25);
  }
  return table;
}
