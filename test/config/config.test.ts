import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { Config } from "../../src/config/config.ts";
import { environmentName, flagName, settings } from "../../src/config/settings.ts";
import { configurationDoc } from "./configuration-doc.ts";

let folder: string;
let file: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "pocket-config-"));
  file = join(folder, "config.toml");
});
afterAll(() => rmSync(folder, { recursive: true }));

function read(given: {
  flags?: Record<string, string>;
  environment?: Record<string, string>;
  toml?: string;
}) {
  writeFileSync(file, given.toml ?? "");
  return Config.read({ flags: given.flags ?? {}, environment: given.environment ?? {}, file });
}

describe("a setting", () => {
  test("comes from the flag before the environment before the file before the default", () => {
    const toml = "[cache]\ntokens = 100";
    const environment = { POCKET_CACHE_TOKENS: "200" };
    const flags = { "cache.tokens": "300" };
    const seen = [read({}), read({ toml }), read({ toml, environment }), read({ toml, environment, flags })];
    expect(seen.map((config) => [config.number("cache.tokens"), config.source("cache.tokens")])).toEqual([
      [32_768, "default"],
      [100, "file"],
      [200, "environment"],
      [300, "flag"],
    ]);
  });

  test("of the models folder follows POCKET_CACHE unless it is set itself", () => {
    expect(read({ environment: { POCKET_CACHE: "/big" } }).text("models.dir")).toBe("/big");
    const both = { POCKET_CACHE: "/big", POCKET_MODELS_DIR: "/models" };
    expect(read({ environment: both }).text("models.dir")).toBe("/models");
  });

  test("that is a list may be written with commas or as a list", () => {
    expect(read({ flags: { "server.allowed_hosts": "a.lan, b.lan" } }).texts("server.allowed_hosts")).toEqual(
      ["a.lan", "b.lan"],
    );
    const toml = 'server.allowed_hosts = ["c.lan"]';
    expect(read({ toml }).texts("server.allowed_hosts")).toEqual(["c.lan"]);
  });

  test("that is a size may have a unit, and one that is a switch several words", () => {
    const size = (value: string) => read({ flags: { "cache.disk": value } }).number("cache.disk");
    expect(["8G", "512m", "1.5 GiB", "2097152"].map(size)).toEqual([
      8 * 2 ** 30,
      512 * 2 ** 20,
      1.5 * 2 ** 30,
      2_097_152,
    ]);
    expect(read({ toml: 'cache.disk = "2G"' }).number("cache.disk")).toBe(2 ** 31);
    const repair = (word: string) => read({ environment: { POCKET_IDLE_REPAIR: word } }).flag("idle_repair");
    expect(["off", "0", "FALSE", "no", "on", "1"].map(repair)).toEqual([
      ...[false, false, false, false],
      ...[true, true],
    ]);
    expect(read({}).flag("idle_repair")).toBe(true);
    expect(read({ toml: "idle_repair = false" }).flag("idle_repair")).toBe(false);
  });

  test.each([
    [{ flags: { "cache.disk": "8X" } }, /--cache-disk must be a size .* such as 512M or 8G, not "8X"/],
    [{ flags: { "cache.disk": "1" } }, /--cache-disk must be a size from 1048576/],
    [{ environment: { POCKET_IDLE_REPAIR: "maybe" } }, /POCKET_IDLE_REPAIR must be true or false/],
    [{ toml: "sessions.ttl = -1" }, /sessions\.ttl in .* must be a number from 0/],
    [{ flags: { port: "99999" } }, /--port must be a whole number from 0 to 65535, not 99999/],
    [{ flags: { port: "" } }, /--port must be a whole number/],
    [{ flags: { port: "80x" } }, /--port/],
    [{ environment: { POCKET_REUSE: "all" } }, /POCKET_REUSE must be suffix, prefix, none, not "all"/],
    [{ toml: "threads = 1.5" }, /threads in .*config\.toml must be a whole number/],
    [{ toml: 'cache.tokens = "many"' }, /cache\.tokens in .*config\.toml/],
    [{ flags: { repair: "everything" } }, /--repair must be none/],
    [{ flags: { "cache.page_size": "24" } }, /--cache-page-size must be a multiple of 16/],
  ])("of %j is refused with its place and its range", (given, message) => {
    expect(() => read(given)).toThrow(message);
  });

  test("that is misspelt names the right one", () => {
    expect(() => read({ toml: "[cache]\ntoken = 5" })).toThrow(
      /'cache\.token' .* did you mean 'cache\.tokens'/,
    );
    const { warnings } = read({ environment: { POCKET_PROT: "1", POCKET_OFFLINE: "1", POCKET_PORT: "1" } });
    expect(warnings).toEqual([
      expect.stringContaining("POCKET_PROT is not a setting and has no effect; did you mean POCKET_PORT"),
    ]);
  });
});

test("a file that is named must exist and be TOML", () => {
  expect(() => Config.read({ flags: {}, environment: {}, file: join(folder, "none.toml") })).toThrow(
    /no configuration file/,
  );
  expect(() => read({ toml: "port = = 3" })).toThrow(/cannot be read/);
});

test("every setting has a sentence, a flag and a variable that no other setting has", () => {
  expect(settings.filter(({ sentence }) => sentence.length < 10)).toEqual([]);
  expect(new Set(settings.map(({ key }) => flagName(key))).size).toBe(settings.length);
  expect(new Set(settings.map(({ key }) => environmentName(key))).size).toBe(settings.length);
});

test("every default is a value that the setting would accept", () => {
  const flags = Object.fromEntries(
    settings
      .filter((each) => each.default !== undefined && each.type.kind !== "texts")
      .map((each) => [each.key, String(each.default)]),
  );
  const config = read({ flags });
  for (const { key } of settings)
    if (flags[key] !== undefined) expect(String(config.value(key))).toBe(flags[key]);
});

test("docs/configuration.md has the settings as they are; WRITE_DOCS=1 writes it", () => {
  const path = fileURLToPath(new URL("../../docs/configuration.md", import.meta.url));
  if (process.env.WRITE_DOCS === "1") writeFileSync(path, configurationDoc());
  expect(readFileSync(path, "utf8"), "stale: run WRITE_DOCS=1 npx vitest run test/config").toBe(
    configurationDoc(),
  );
});

test("the set of kernels and the mirror can be chosen, and are automatic otherwise", () => {
  expect([read({}).choice("isa"), read({}).flag("mirror")]).toEqual(["auto", true]);
  const given = read({ flags: { isa: "avx2", mirror: "false" } });
  expect([given.choice("isa"), given.flag("mirror")]).toEqual(["avx2", false]);
  expect(() => read({ environment: { POCKET_ISA: "sse" } })).toThrow(
    /POCKET_ISA must be auto, portable, avx2/,
  );
});

test("a key that is not in the table, or of another kind, does not compile", () => {
  const config = read({});
  // @ts-expect-error: there is no such key
  expect(config.value("cache.token")).toBeUndefined();
  // @ts-expect-error: this is a number
  expect(config.text("port")).toBe("8080");
});
