// Reads the Prometheus text form back into numbers by name and labels, for tests and the soak.
export function parseMetrics(text: string): Map<string, number> {
  const lines = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return new Map(
    lines.map((line) => {
      const gap = line.lastIndexOf(" ");
      return [line.slice(0, gap), Number(line.slice(gap + 1))];
    }),
  );
}

/** Throws for a name that is not there: a misspelt one must not read as zero. */
export function metricReader(numbers: ReadonlyMap<string, number>): (name: string) => number {
  return (name) => {
    const value = numbers.get(name);
    if (value === undefined) throw new Error(`${name} is not among ${[...numbers.keys()].join(", ")}`);
    return value;
  };
}
