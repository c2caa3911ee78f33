// MCP servers as a source of tools: one in this process, one as a program, and invalid ones.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { expect, test } from "vitest";
import { z } from "zod";
import { runTool } from "../../src/harness/tool.ts";
import { connectMcp, openMcpServers, parseMcpServer } from "../../src/harness/tools/mcp.ts";
import { mcpProgram } from "./mcp-program.ts";

async function connected(maxCharacters = 1000) {
  const server = new McpServer({ name: "sums", version: "1" });
  server.registerTool(
    "add",
    { description: "Adds.", inputSchema: { a: z.number(), b: z.number() } },
    async ({ a, b }) => ({
      content: [{ type: "text", text: String(a + b) }],
    }),
  );
  server.registerTool("fail.loudly", { description: "Fails." }, async () => {
    throw new Error("no luck");
  });
  server.registerTool("draw", {}, async () => ({
    content: [
      { type: "text", text: "x".repeat(3000) },
      { type: "image", data: "AAAA", mimeType: "image/png" },
    ],
  }));
  const [near, far] = InMemoryTransport.createLinkedPair();
  await server.connect(far);
  return connectMcp("sums", near, maxCharacters);
}

const use = (tools: Awaited<ReturnType<typeof connected>>["tools"], name: string, json: string) =>
  runTool(tools, { id: "1", name, arguments: json }, new AbortController().signal);

test("tools have the name of the server and its schema, and return text", async () => {
  const { tools, close } = await connected();
  expect(tools.map(({ spec }) => spec.name)).toEqual(["sums_add", "sums_fail_loudly", "sums_draw"]);
  expect(tools[0]!.spec).toMatchObject({ description: "Adds.", parameters: { required: ["a", "b"] } });
  expect(await use(tools, "sums_add", '{"a": 2, "b": 3}')).toBe("5");
  expect(await use(tools, "sums_add", '{"a": "x"}')).toMatch(/^sums_add failed: .*a/s);
  expect(await use(tools, "sums_fail_loudly", "")).toBe("sums_fail_loudly failed: no luck");
  expect(await use(tools, "sums_add", "{")).toBe("The arguments are not JSON. Call again.");
  const drawn = await use(tools, "sums_draw", "{}");
  expect(drawn.length).toBeLessThan(1100);
  expect(drawn).toMatch(/characters left out[\s\S]*\(image, not shown: only text is\)$/);
  await close();
});

test("a program is started without keys in its environment, used and ended", async () => {
  const folder = mkdtempSync(join(tmpdir(), "pocket-mcp-"));
  const program = mcpProgram(folder, "env", "key", "String(process.env.OPENAI_API_KEY)");
  process.env.OPENAI_API_KEY = "sk-secret";
  try {
    const { tools, close } = await openMcpServers([program], 1000);
    expect(await use(tools, "env_key", "{}")).toBe("undefined");
    await close();
  } finally {
    delete process.env.OPENAI_API_KEY;
    rmSync(folder, { recursive: true });
  }
});

test("a server that cannot be used is named in the error", async () => {
  await expect(openMcpServers(["gone=/none/such"], 1000)).rejects.toMatchObject({ code: "MCP_FAILED" });
  await expect(openMcpServers(["web=http://127.0.0.1:1/mcp"], 1000)).rejects.toThrow("The MCP server 'web'");
  for (const text of ["", "x", "a b=c", "=c", "x="])
    expect(() => parseMcpServer(text)).toThrow("--mcp is a name");
  expect(parseMcpServer("web=https://host/mcp")).toMatchObject({
    name: "web",
    url: new URL("https://host/mcp"),
  });
  expect(parseMcpServer("files=npx some /data")).toEqual({
    name: "files",
    command: "npx",
    args: ["some", "/data"],
  });
});
