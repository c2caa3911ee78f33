// POST /tokenize, /detokenize and /apply-template: token ids and rendered prompts; no model step runs.
import { z } from "zod";
import type { App, RouteContext } from "../context.ts";
import { badField } from "../openai/error-response.ts";
import { parseMessages, parseTools } from "../openai/parse-messages.ts";
import { messagesSchema, toolSchema } from "../openai/schemas.ts";

const tokenizeSchema = z.looseObject({
  content: z.string(),
  /** Default: false. */
  add_special: z.boolean().nullish(),
  /** Default: true. */
  parse_special: z.boolean().nullish(),
  with_pieces: z.boolean().nullish(),
});

const detokenizeSchema = z.looseObject({ tokens: z.array(z.number().int().min(0)) });

const templateSchema = z.looseObject({ messages: messagesSchema, tools: z.array(toolSchema).nullish() });

export function tokenizeRoutes(app: App, { backend }: RouteContext): void {
  app.post("/tokenize", { schema: { body: tokenizeSchema } }, ({ body }) => {
    const ids = backend.tokenize(body.content, {
      addSpecial: body.add_special ?? false,
      parseSpecial: body.parse_special ?? true,
    });
    const pieces = () => ids.map((id) => ({ id, piece: backend.detokenize([id]) }));
    return { tokens: body.with_pieces === true ? pieces() : ids, count: ids.length };
  });

  app.post("/detokenize", { schema: { body: detokenizeSchema } }, ({ body }) => {
    const { vocab } = backend.model;
    const bad = body.tokens.findIndex((id) => id >= vocab);
    if (bad >= 0)
      throw badField(`tokens.${bad}`, `${body.tokens[bad]} is not a token id; the vocabulary has ${vocab}`);
    return { content: backend.detokenize(body.tokens) };
  });

  app.post("/apply-template", { schema: { body: templateSchema } }, ({ body }) => {
    const { tools } = parseTools(body.tools);
    const rendered = backend.applyTemplate(
      parseMessages(body.messages),
      tools.length > 0 ? tools : undefined,
    );
    return { prompt: rendered.text, tokens: rendered.tokens, count: rendered.tokens.length };
  });
}
