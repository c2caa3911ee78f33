// Rows in which every two values of every two axes meet at least once, chosen greedily.
export function allPairs(sizes: readonly number[]): number[][] {
  const open = new Set<string>();
  const name = (a: number, va: number, b: number, vb: number) => `${a}.${va} ${b}.${vb}`;
  for (let b = 1; b < sizes.length; b++)
    for (let a = 0; a < b; a++)
      for (let va = 0; va < sizes[a]!; va++)
        for (let vb = 0; vb < sizes[b]!; vb++) open.add(name(a, va, b, vb));
  const rows: number[][] = [];
  while (open.size > 0) {
    const row: number[] = [];
    for (let axis = 0; axis < sizes.length; axis++) {
      const gains = Array.from({ length: sizes[axis]! }, (_, value) => gain(row, axis, value));
      row.push(gains.indexOf(Math.max(...gains)));
    }
    const before = open.size;
    for (let b = 1; b < row.length; b++)
      for (let a = 0; a < b; a++) open.delete(name(a, row[a]!, b, row[b]!));
    // Greedy choice may run dry: then the first open pair is set by force.
    if (open.size === before) force(open, row);
    rows.push(row);
  }
  return rows;

  /** Open pairs that the value closes with what is chosen, or may close with what is not. */
  function gain(row: readonly number[], axis: number, value: number): number {
    let count = 0;
    for (const pair of open) {
      const [first, second] = pair.split(" ") as [string, string];
      const own = `${axis}.${value}`;
      if (second === own && `${first.split(".")[0]}.${row[Number(first.split(".")[0])]}` === first)
        count += 10;
      else if (first === own) count++;
    }
    return count;
  }
}

function force(open: Set<string>, row: number[]): void {
  const [first, second] = [...open][0]!.split(" ") as [string, string];
  for (const part of [first, second]) {
    const [axis, value] = part.split(".").map(Number) as [number, number];
    row[axis] = value;
  }
  for (const pair of open) {
    const parts = pair.split(" ").map((part) => part.split(".").map(Number) as [number, number]);
    if (parts.every(([axis, value]) => row[axis] === value)) open.delete(pair);
  }
}
