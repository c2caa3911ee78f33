// An MCP server as a program: a file that a test writes and has started, with one tool without arguments.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { packageRoot } from "../../src/cli/package-root.ts";

/**
 * Writes `<folder>/<name>.mjs`, whose tool gives `expression`, evaluated in the program. Returns what
 * `openMcpServers` takes for it.
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
