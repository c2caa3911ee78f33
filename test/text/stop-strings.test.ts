import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { StopStrings } from "../../src/text/stop-strings.ts";

/** The dumber model: read character by character until the text ends in a stop. */
function cutAtFirstMatch(text: string, stops: readonly string[]): string {
  for (let end = 1; end <= text.length; end++) {
    const ending = stops.filter((stop) => text.slice(0, end).endsWith(stop));
    if (ending.length > 0) return text.slice(0, end - Math.max(...ending.map((stop) => stop.length)));
  }
  return text;
}

// Few letters, so that stops overlap, repeat and begin like one another.
const letters = fc.constantFrom("a", "b", "🫠");
const piece = fc.array(letters, { maxLength: 6 }).map((parts) => parts.join(""));
const stop = fc.array(letters, { minLength: 1, maxLength: 20 }).map((parts) => parts.join(""));

describe("stop strings", () => {
  it("stream to the same text as the whole text cut at its first match, wherever it is broken up", () => {
    fc.assert(
      fc.property(fc.array(piece), fc.array(stop, { maxLength: 4 }), (pieces, stops) => {
        const filter = new StopStrings(stops);
        const streamed = pieces.map((part) => filter.push(part)).join("") + filter.flush();
        const whole = pieces.join("");
        expect(streamed).toBe(cutAtFirstMatch(whole, stops));
        expect(filter.stopped).toBe(streamed !== whole);
      }),
      { numRuns: 2000 },
    );
  });

  it("hold back nothing that can no longer become a match", () => {
    fc.assert(
      fc.property(fc.array(piece), fc.array(stop, { minLength: 1, maxLength: 3 }), (pieces, stops) => {
        const filter = new StopStrings(stops);
        let seen = "";
        let out = "";
        for (const part of pieces) {
          seen += part;
          out += filter.push(part);
          if (filter.stopped) return;
          const held = seen.slice(out.length);
          expect(held === "" || stops.some((text) => text !== held && text.startsWith(held))).toBe(true);
        }
      }),
    );
  });

  it("ignore empty strings", () => {
    const filter = new StopStrings([""]);
    expect(filter.push("abc")).toBe("abc");
    expect(filter.stopped).toBe(false);
  });
});
