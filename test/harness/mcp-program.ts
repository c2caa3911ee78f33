// Writes an MCP server with one tool without arguments, for tests that start it as a program.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { packageRoot } from "../../src/cli/package-root.ts";

/**
 * Writes `<folder>/<name>.mjs`, whose tool returns the value of `expression`. Returns the text for
 * `openMcpServers`.
 */
export function mcpProgram(folder: string, name: string, tool: string, expression: string): string {
  const sdk = pathToFileURL(
    join(packageRoot(), "node_modules/@modelcontextprotocol/sdk/dist/esm/server/"),
  ).href;
  const file = join(folder, `${name}.mjs`);
  const lines = [
    `import { McpServer } from "${sdk}mcp.js";`,
    `import { StdioServerTransport } from "${sdk}stdio.js";`,
    `const server = new McpServer({ name: "${name}", version: "1" });`,
    `server.registerTool("${tool}", {}, async () => ({ content: [{ type: "text", text: ${expression} }] }));`,
    "await server.connect(new StdioServerTransport());",
  ];
  writeFileSync(file, lines.join("\n"));
  return `${name}=${process.execPath} ${file}`;
}
