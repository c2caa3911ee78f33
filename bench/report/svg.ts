// A Vega-Lite description as SVG text, without a browser. Text widths are estimates, since there is no canvas; the
// fonts of a reader differ anyway.
import { parse, View } from "vega";
import { compile, type TopLevelSpec } from "vega-lite";

/** Rejects where the description is not drawable; a warning of the compiler is an error here. */
export async function svgOf(description: TopLevelSpec): Promise<string> {
  const complaints: string[] = [];
  const complain = (...words: readonly unknown[]) => {
    complaints.push(words.join(" "));
    return logger;
  };
  const silent = () => logger;
  const logger = { level: silent, error: complain, warn: complain, info: silent, debug: silent } as never;
  const { spec } = compile(description, { logger });
  if (complaints.length > 0) throw new Error(complaints.join("; "));
  const view = new View(parse(spec), { renderer: "none" });
  try {
    return await view.toSVG();
  } finally {
    view.finalize();
  }
}
