// The wire shapes of requests that chat and text completions share. Unknown fields pass, because clients send
// many (api-wide rule: ignore what is unknown, refuse what is known and not done); numbers out of range do
// not. House types are made from these in parse-messages.ts and answer-options.ts; snake_case ends there.
import { z } from "zod";
import type { Repair } from "../../chat/chat.ts";
import { isRepair, repairGrammar } from "../../repair.ts";

const integer = z.number().int();

/** Looked at in one loop: a prompt has tens of thousands, and a schema for each costs milliseconds. */
export function isTokenIds(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((id) => Number.isSafeInteger(id) && id >= 0);
}

const tokenIds = z.custom<number[]>(isTokenIds);

/** Ours alone, so a misspelt key in it is refused instead of silently not done. */
export const pocketSchema = z.strictObject({
  session: z.string().min(1).max(256).nullish(),
  reuse: z.enum(["suffix", "prefix", "none"]).nullish(),
  repair: z.custom<Repair>(isRepair, { error: `must be ${repairGrammar}` }).nullish(),
  forget: z.boolean().nullish(),
  fork: z.boolean().nullish(),
  lookup: z.boolean().nullish(),
});

const answerFields = {
  model: z.string().nullish(),
  stream: z.boolean().nullish(),
  stream_options: z.looseObject({ include_usage: z.boolean().nullish() }).nullish(),
  max_tokens: integer.min(1).nullish(),
  temperature: z.number().min(0).max(2).nullish(),
  top_p: z.number().gt(0).max(1).nullish(),
  /** -1 is how several servers spell "off". */
  top_k: integer.min(-1).max(1_000_000).nullish(),
  min_p: z.number().min(0).max(1).nullish(),
  repetition_penalty: z.number().gt(0).max(10).nullish(),
  frequency_penalty: z.number().min(-2).max(2).nullish(),
  presence_penalty: z.number().min(-2).max(2).nullish(),
  seed: integer.nullish(),
  stop: z
    .union([z.string().min(1), z.array(z.string().min(1)).max(16)], {
      error: "must be a string or up to 16 strings, none of them empty",
    })
    .nullish(),
  n: z.literal(1, { error: "must be 1: one answer per request is served" }).nullish(),
  logit_bias: z
    .record(z.string(), z.number())
    .refine((bias) => Object.keys(bias).length === 0, { error: "is not served" })
    .nullish(),
  prompt_cache_key: z.string().max(1024).nullish(),
  pocket: pocketSchema.nullish(),
};

const textPart = z.looseObject({
  type: z.string(),
  text: z.string().nullish(),
});

const contentSchema = z
  .union([z.string(), z.array(textPart)], { error: "must be a string, a list of parts, or null" })
  .nullish();

const toolCallSchema = z.looseObject({
  id: z.string().nullish(),
  type: z.string().nullish(),
  function: z.looseObject({
    name: z.string(),
    /** Text on the wire; some clients send the object itself. */
    arguments: z.union([z.string(), z.looseObject({})], { error: "must be JSON text" }).nullish(),
  }),
});

export const messageSchema = z.looseObject({
  role: z.enum(["system", "developer", "user", "assistant", "tool"]),
  content: contentSchema,
  name: z.string().nullish(),
  reasoning_content: z.string().nullish(),
  reasoning: z.string().nullish(),
  tool_calls: z.array(toolCallSchema).nullish(),
  tool_call_id: z.string().nullish(),
});

export const messagesSchema = z.array(messageSchema).min(1);

export const toolSchema = z.looseObject({
  type: z.string(),
  function: z
    .looseObject({
      name: z.string().min(1),
      description: z.string().nullish(),
      parameters: z.looseObject({}).nullish(),
      strict: z.boolean().nullish(),
    })
    .nullish(),
});

const namedTool = z.looseObject({
  type: z.literal("function"),
  function: z.looseObject({ name: z.string() }),
});

export const chatSchema = z.looseObject({
  ...answerFields,
  messages: messagesSchema,
  tools: z.array(toolSchema).nullish(),
  tool_choice: z
    .union(
      [
        z.enum(["auto", "none", "required"]),
        namedTool,
        z.looseObject({
          type: z.literal("allowed_tools"),
          allowed_tools: z.looseObject({
            mode: z.enum(["auto", "required"]),
            tools: z.array(namedTool).min(1),
          }),
        }),
      ],
      { error: "must be auto, none, required, a function by its name, or allowed_tools with functions" },
    )
    .nullish(),
  parallel_tool_calls: z.boolean().nullish(),
  max_completion_tokens: integer.min(1).nullish(),
  logprobs: z.boolean().nullish(),
  top_logprobs: integer.min(0).max(20).nullish(),
  response_format: z
    .looseObject({
      type: z.string(),
      json_schema: z
        .looseObject({ schema: z.looseObject({}).nullish(), strict: z.boolean().nullish() })
        .nullish(),
    })
    .nullish(),
});

export const completionSchema = z.looseObject({
  ...answerFields,
  prompt: z.union([z.string(), tokenIds, z.array(z.union([z.string(), integer.min(0), tokenIds]))], {
    error: "must be a string or a list of token ids",
  }),
  /** Alternatives per token, not a switch as in chat. */
  logprobs: integer.min(0).max(20).nullish(),
  echo: z.literal(false, { error: "must be false: the prompt is not repeated" }).nullish(),
  suffix: z.literal("", { error: "is not served: nothing is filled in before a suffix" }).nullish(),
  best_of: z.literal(1, { error: "must be 1: one answer per request is served" }).nullish(),
});

const answerSchema = z.object(answerFields);
export type AnswerBody = z.infer<typeof answerSchema>;
export type ChatBody = z.infer<typeof chatSchema>;
export type CompletionBody = z.infer<typeof completionSchema>;
export type WireMessage = z.infer<typeof messageSchema>;
export type WireTool = z.infer<typeof toolSchema>;
