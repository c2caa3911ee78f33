// What all figures have in common: frame, fonts, and how names get their colours.

export const frame = {
  $schema: "https://vega.github.io/schema/vega-lite/v6.json",
  background: "white",
  padding: 8,
  config: {
    font: "Helvetica, Arial, sans-serif",
    axis: { labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", gridColor: "#e5e5e5" },
    legend: { labelFontSize: 12, titleFontSize: 12, symbolSize: 90, labelLimit: 260 },
    title: { fontSize: 14, anchor: "start", subtitleFontSize: 11, subtitleColor: "#555", offset: 10 },
    header: { labelFontSize: 12, labelFontWeight: "bold" },
  },
} as const;

/** Only what occurs is in the legend, in the order of the table. */
export function coloured(
  field: string,
  colours: Readonly<Record<string, string>>,
  values: readonly Readonly<Record<string, unknown>>[],
) {
  const domain = Object.keys(colours).filter((name) => values.some((value) => value[field] === name));
  return {
    field,
    type: "nominal" as const,
    title: field,
    sort: domain,
    scale: { domain, range: domain.map((name) => colours[name]!) },
  };
}
