// The peer's side without the peer: a script in the interpreter's place that speaks as much of genai/driver.py as
// is needed to be started, asked and stopped.
import { rmSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { PeerEngine } from "../../bench/engine/peer-engine.ts";
import { openGenai } from "../../bench/peers/genai.ts";
import { PipeProcess } from "../../bench/peers/pipe-process.ts";
import { PeersFolder } from "./peers-folder.ts";

// Reads a token in a second and makes one in half of that; ends early on 666, as a model does on an end token.
const script = `#!${process.execPath}
const { createInterface } = require("node:readline");
const [driver, folder, threads, context] = process.argv.slice(2);
const say = (answer) => console.log(JSON.stringify(answer));
say({ ready: [driver.split("/").pop(), folder.split("/").pop(), threads, context].join(" ") });
createInterface({ input: process.stdin }).on("line", (line) => {
  const { do: kind, context, added, count } = JSON.parse(line);
  if (context.includes(13)) return say({ error: "ValueError: no luck" });
  if (context.includes(99)) { console.error("out of memory"); process.exit(1); }
  const grown = kind === "prefill" ? added.length + 1 : context.includes(666) ? 3 : count;
  say({ seconds: kind === "prefill" ? added.length : count / 2, grown, ids: [], peakBytes: 1000 + grown });
});
`;

const options = { gguf: "/weights/w.gguf", sha256: "ab12", threads: 2, context: 64 };
let folder: PeersFolder;
let peer: PeerEngine | undefined;

beforeEach(() => {
  folder = new PeersFolder();
  folder.place("genai/venv/bin/python", script);
  folder.place("genai/models/w/source.sha256", "ab12");
});

afterEach(async () => {
  await peer?.close();
  peer = undefined;
  folder.remove();
});

describe("ONNX Runtime GenAI as a peer engine", () => {
  test("is started with its model, its threads and its context", async () => {
    peer = await openGenai(options);
    expect(peer.name).toBe("genai driver.py w 2 64");
  });

  test("is timed by its own clock, the token behind a prompt is part of it, and of a decode only steps", async () => {
    peer = await openGenai(options);
    expect(await peer.resident([1, 2, 3, 4])).toBe(4);
    expect(await peer.prefill([1, 2], [50, 60, 70])).toBe(3);
    expect(await peer.decode([1], 32)).toBe(16);
    expect(peer.peakBytes!()).toBe(1032);
  });

  test("that computed another number of tokens than it was asked for is not believed", async () => {
    peer = await openGenai(options);
    await expect(peer.decode([666], 32)).rejects.toThrow("computed 3 tokens and not 32");
  });

  test("answers the next question after one that failed", async () => {
    peer = await openGenai(options);
    await expect(peer.decode([13], 8)).rejects.toThrow("no luck");
    expect(await peer.decode([1], 8)).toBe(4);
  });

  test("that ends in the midst of a question says its last words", async () => {
    peer = await openGenai(options);
    await expect(peer.decode([99], 8)).rejects.toThrow("out of memory");
    await expect(peer.decode([1], 8)).rejects.toThrow("ended");
  });

  test("that ends before it is ready says its last words", async () => {
    folder.place("genai/venv/bin/python", "#!/bin/sh\necho no such module >&2; exit 3\n");
    await expect(openGenai(options)).rejects.toThrow("no such module");
  });

  test("that was built of other weights is not measured", async () => {
    await expect(openGenai({ ...options, sha256: "cd34" })).rejects.toThrow("SHA-256 ab12");
  });

  test("that is not built names the command that builds it", async () => {
    await expect(openGenai({ ...options, gguf: "/weights/v.gguf" })).rejects.toThrow(
      "scripts/peers genai /weights/v.gguf",
    );
    rmSync(join(folder.path, "genai/venv"), { recursive: true });
    await expect(openGenai(options)).rejects.toThrow("scripts/peers genai FILE.gguf");
  });
});

test("a program that is not there rejects instead of ending the bench", async () => {
  await expect(PipeProcess.start("/no/such/program", [])).rejects.toThrow("ENOENT");
});
