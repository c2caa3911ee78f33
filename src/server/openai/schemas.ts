// Schemas of request bodies. Unknown fields are ignored, since clients send many; known fields that are not supported,
// and numbers out of range, are refused. parse-messages.ts and answer-options.ts convert the bodies.
import { z } from "zod";
import type { Repair } from "../../chat/chat.ts";
import { isRepair, repairGrammar } from "../../repair.ts";

const integer = z.number().int();

/** One loop: a zod schema per element costs milliseconds for a prompt of tens of thousands of ids. */
export function isTokenIds(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((id) => Number.isSafeInteger(id) && id >= 0);
}

const tokenIds = z.custom<number[]>(isTokenIds);

/** Strict: only Pocket defines these keys, so an unknown one is a spelling error. */
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
  /** -1 is off, as in other servers. */
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
    /** JSON text; some clients send the object. */
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
  /** The number of alternatives per token; in chat this is a boolean. */
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
