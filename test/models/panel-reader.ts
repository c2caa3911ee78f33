// Reference reader of the panel layout: one value at a time, written from the text of native/linear/layout.h, in the
// arithmetic of the gguf package (f32 products, then an f32 sum). It shares only the names of the formats with
// models/quantisation/panels.ts.
import { f16Values } from "../../models/quantisation/half.ts";
import type { PanelFormat } from "../../models/quantisation/panels.ts";

interface Layout {
  readonly bits: number;
  readonly zero: number;
  readonly minimum: boolean;
  readonly columns: number;
}

const layouts: Readonly<Record<PanelFormat, Layout>> = {
  q4_0: { bits: 4, zero: 8, minimum: false, columns: 32 },
  q4_1: { bits: 4, zero: 0, minimum: true, columns: 32 },
  q5_0: { bits: 5, zero: 16, minimum: false, columns: 32 },
  q5_1: { bits: 5, zero: 0, minimum: true, columns: 32 },
  q8_0: { bits: 8, zero: 128, minimum: false, columns: 32 },
  q4_k: { bits: 4, zero: 0, minimum: true, columns: 256 },
  q5_k: { bits: 5, zero: 0, minimum: true, columns: 256 },
  q6_k: { bits: 6, zero: 32, minimum: false, columns: 256 },
};

/** W (rows, columns) as f32. Throws RangeError when the number of bytes does not fit the layout. */
export function readPanels(
  format: PanelFormat,
  panels: Uint8Array,
  rows: number,
  columns: number,
): Float32Array {
  const layout = layouts[format];
  const header = (layout.minimum ? 64 : 32) + (layout.columns === 256 ? 256 : 0);
  const record = header + (16 * layout.columns * layout.bits) / 8;
  const panel = (columns / layout.columns) * record;
  if (panels.length !== Math.ceil(rows / 16) * panel) throw new RangeError(`${panels.length} bytes`);
  const half = (at: number) => f16Values[panels[at]! + 256 * panels[at + 1]!]!;
  return Float32Array.from({ length: rows * columns }, (_, i) => {
    const [row, column] = [Math.floor(i / columns), i % columns];
    const n = row % 16;
    const at = Math.floor(row / 16) * panel + Math.floor(column / layout.columns) * record;
    const inside = column % layout.columns;
    const group = Math.floor(inside / 32);
    const k = inside % 32;
    const position = Math.floor(k / 4) * 64 + n * 4 + (k % 4);
    const code = codeAt(panels, at + header + group * 64 * layout.bits, layout.bits, position) - layout.zero;
    const d = half(at + 2 * n);
    const m = layout.minimum ? half(at + 32 + 2 * n) : 0;
    if (format === "q6_k") {
      const scale = (panels[at + 32 + Math.floor(inside / 16) * 16 + n]! << 24) >> 24;
      return Math.fround(d * scale) * code;
    }
    if (layout.columns === 256) {
      const scale = Math.fround(d * panels[at + 64 + group * 16 + n]!);
      return Math.fround(scale * code) - Math.fround(m * panels[at + 64 + 128 + group * 16 + n]!);
    }
    return layout.minimum ? Math.fround(d * code) + m : d * code;
  });
}

function codeAt(bytes: Uint8Array, at: number, bits: number, position: number): number {
  if (bits === 8) return bytes[at + position]!;
  const byte = bytes[at + (position % 256)]!;
  const low = position < 256 ? byte % 16 : byte >> 4;
  if (bits === 4) return low;
  if (bits === 5) return low + 16 * ((bytes[at + 256 + (position >> 3)]! >> (position % 8)) % 2);
  return low + 16 * ((bytes[at + 256 + (position % 128)]! >> (2 * Math.floor(position / 128))) % 4);
}
