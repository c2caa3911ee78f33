// The byte-level alphabet of BPE vocabularies: one printable character per byte, so that a vocabulary of byte strings
// can be stored as JSON. A byte that is printable in Latin-1 is its own character; the others are the characters from
// U+0100 on, in order (Radford et al. 2019, GPT-2).

/** The bytes of a vocabulary entry; undefined if it has a character outside the alphabet. */
export function alphabetBytes(entry: string): Uint8Array | undefined {
  const bytes = new Uint8Array(entry.length);
  for (let at = 0; at < entry.length; at++) {
    const byte = byteOfCode.get(entry.charCodeAt(at));
    if (byte === undefined) return undefined;
    bytes[at] = byte;
  }
  return bytes;
}

/** The character of a byte, 0 … 255. */
export function alphabetCharacter(byte: number): string {
  return String.fromCharCode(codeOfByte[byte]!);
}

function isPrintable(byte: number): boolean {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

const codeOfByte = ((): readonly number[] => {
  let next = 0x100;
  return Array.from({ length: 256 }, (_, byte) => (isPrintable(byte) ? byte : next++));
})();

const byteOfCode: ReadonlyMap<number, number> = new Map(codeOfByte.map((code, byte) => [code, byte]));
