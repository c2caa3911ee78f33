// Tools of MCP servers (modelcontextprotocol.io). A server is started as a program or reached by URL, lists
// its tools once, and is called whenever the agent calls one. Runs use none by default. A server runs outside
// the sandbox of the workspace, so it must be a program that the user trusts.
import type { Client } from "@modelcontextprotocol/sdk/client/index.js";
import type { Transport } from "@modelcontextprotocol/sdk/shared/transport.js";
import { PocketError, pocketError } from "../../errors.ts";
import type { AgentTool } from "../tool.ts";
import { excerpt } from "./excerpt.ts";

export interface McpTools {
  readonly tools: readonly AgentTool[];
  /** Closes the connections and ends the programs that were started. */
  close(): Promise<void>;
}

/** `files=npx some-server /data`, or `web=https://host/mcp`: a name, and a command or a URL. */
export interface McpServer {
  readonly name: string;
  readonly url?: URL;
  readonly command?: string;
  readonly args?: readonly string[];
}

const callTimeoutMs = 120_000;
const connectTimeoutMs = 30_000;

/** Throws BAD_CONFIG. */
export function parseMcpServer(text: string): McpServer {
  const [, name, what] = /^([A-Za-z0-9-]{1,24})=(\S.*)$/.exec(text.trim()) ?? [];
  if (!name || !what) {
    throw new PocketError(
      "BAD_CONFIG",
      `--mcp is a name and a command or URL, such as files='npx some-server', not '${text}'.`,
    );
  }
  if (/^https?:\/\//.test(what)) {
    if (!URL.canParse(what)) throw new PocketError("BAD_CONFIG", `--mcp ${name}: '${what}' is no URL.`);
    return { name, url: new URL(what) };
  }
  const [command, ...args] = what.split(/\s+/);
  return { name, command: command!, args };
}

/** Connects to all servers or to none. `maxCharacters`: of one result. Throws BAD_CONFIG and MCP_FAILED. */
export async function openMcpServers(texts: readonly string[], maxCharacters: number): Promise<McpTools> {
  const opened: McpTools[] = [];
  const close = async () => {
    await Promise.all(opened.map((one) => one.close()));
  };
  try {
    for (const server of texts.map(parseMcpServer))
      opened.push(await connectMcp(server.name, await transportOf(server), maxCharacters));
  } catch (cause) {
    await close();
    throw cause;
  }
  return { tools: opened.flatMap(({ tools }) => tools), close };
}

/** Prefixes each tool with the name of its server, since two servers may have the same. Throws MCP_FAILED. */
export async function connectMcp(
  name: string,
  transport: Transport,
  maxCharacters: number,
): Promise<McpTools> {
  try {
    const { Client } = await import("@modelcontextprotocol/sdk/client/index.js");
    const client = new Client({ name: "pocket", version: "0.1.0" });
    await client.connect(transport, { timeout: connectTimeoutMs });
    const tools: AgentTool[] = [];
    for (let cursor: string | undefined; ; ) {
      const page = await client.listTools(cursor === undefined ? {} : { cursor }, {
        timeout: connectTimeoutMs,
      });
      for (const { name: tool, description, inputSchema } of page.tools)
        tools.push(toolOf(client, { name, tool, description, parameters: inputSchema, maxCharacters }));
      cursor = page.nextCursor;
      if (cursor === undefined) break;
    }
    return { tools, close: () => client.close() };
  } catch (cause) {
    await transport.close().catch(() => {});
    throw pocketError("MCP_FAILED", name, cause instanceof Error ? cause.message : String(cause));
  }
}

interface ToolInfo {
  /** Of the server. */
  readonly name: string;
  readonly tool: string;
  readonly description: string | undefined;
  readonly parameters: unknown;
  readonly maxCharacters: number;
}

function toolOf(client: Client, { name, tool, description, parameters, maxCharacters }: ToolInfo): AgentTool {
  // The characters and the length that OpenAI-compatible servers and chat templates accept.
  const fullName = `${name}_${tool}`.replace(/[^A-Za-z0-9_-]/g, "_").slice(0, 64);
  return {
    spec: { name: fullName, ...(description ? { description } : {}), parameters },
    async run(json, signal) {
      let given: unknown;
      try {
        given = JSON.parse(json.trim() === "" ? "{}" : json);
      } catch {
        return "The arguments are not JSON. Call again.";
      }
      const call = { name: tool, arguments: given as Record<string, unknown> };
      const { content, isError } = await client.callTool(call, undefined, { signal, timeout: callTimeoutMs });
      const text = (content as readonly Part[]).map(partText).join("\n");
      return excerpt(isError ? `${fullName} failed: ${text}` : text || "(no output)", maxCharacters);
    },
  };
}

interface Part {
  readonly type: string;
  readonly text?: string;
  readonly resource?: { readonly uri: string; readonly text?: string };
}

function partText({ type, text, resource }: Part): string {
  return text ?? resource?.text ?? `(${type}${resource ? ` ${resource.uri}` : ""}, not shown: only text is)`;
}

async function transportOf({ name, url, command, args = [] }: McpServer): Promise<Transport> {
  try {
    if (url) {
      const { StreamableHTTPClientTransport } = await import(
        "@modelcontextprotocol/sdk/client/streamableHttp.js"
      );
      return new StreamableHTTPClientTransport(url) as Transport;
    }
    // The SDK passes on a short list of environment variables, without keys.
    const { StdioClientTransport } = await import("@modelcontextprotocol/sdk/client/stdio.js");
    return new StdioClientTransport({ command: command!, args: [...args], stderr: "ignore" });
  } catch (cause) {
    throw pocketError("MCP_FAILED", name, cause instanceof Error ? cause.message : String(cause));
  }
}
