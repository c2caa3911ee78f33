// Reads AnswerOptions from body and headers. Of the two length fields the smaller one counts; the session id is
// accepted under several names. Fields that the request leaves out stay undefined; defaults are in src/session.
import type { IncomingHttpHeaders } from "node:http";
import type { FastifyRequest } from "fastify";
import type { AnswerOptions, SamplingOptions } from "../../chat/chat.ts";
import { pocketError } from "../../errors.ts";
import type { ModelInfo } from "../backend.ts";
import { badField } from "./error-response.ts";
import type { AnswerBody } from "./schemas.ts";

type Body = AnswerBody & { readonly max_completion_tokens?: number | null | undefined };

export function answerOptions(
  body: Body,
  { headers, tenant }: Pick<FastifyRequest, "headers" | "tenant">,
): AnswerOptions {
  const limits = [body.max_tokens, body.max_completion_tokens].filter((limit) => typeof limit === "number");
  const session = sessionOf(body, headers);
  return {
    ...samplingOf(body),
    ...(limits.length > 0 && { maxTokens: Math.min(...limits) }),
    ...(body.stop && { stop: typeof body.stop === "string" ? [body.stop] : body.stop }),
    ...(session !== undefined && { session }),
    ...(body.pocket?.reuse && { reuse: body.pocket.reuse }),
    ...(body.pocket?.repair && { repair: body.pocket.repair }),
    ...(body.pocket?.forget && { forget: true }),
    ...(body.pocket?.fork && { fork: true }),
    ...(typeof body.pocket?.lookup === "boolean" && { lookup: body.pocket.lookup }),
    ...(tenant !== undefined && { tenant }),
  };
}

/** Throws MODEL_NOT_FOUND. Without a model in the body, the served one is used. */
export function checkModel(asked: string | null | undefined, model: ModelInfo): void {
  if (asked !== null && asked !== undefined && asked !== model.id) {
    throw pocketError("MODEL_NOT_FOUND", asked, model.id);
  }
}

function samplingOf(body: Body): SamplingOptions {
  const asked: { -readonly [Key in keyof SamplingOptions]?: number | null | undefined } = {
    temperature: body.temperature,
    topP: body.top_p,
    topK: body.top_k === -1 ? 0 : body.top_k,
    minP: body.min_p,
    repetitionPenalty: body.repetition_penalty,
    frequencyPenalty: body.frequency_penalty,
    presencePenalty: body.presence_penalty,
    seed: seedOf(body.seed),
  };
  const given = Object.entries(asked).filter(([, value]) => value !== null && value !== undefined);
  return Object.fromEntries(given);
}

/** -1 is a random seed, as in other servers. The sampler takes 0 to 2^53 - 1, so other negative seeds lose their sign. */
function seedOf(seed: number | null | undefined): number | undefined {
  if (seed === null || seed === undefined || seed === -1) return undefined;
  return Math.abs(seed);
}

/** Headers in which agents send a session id, in this order; the body has precedence. */
const sessionHeaders = ["x-session-id", "x-session-affinity", "session-id"] as const;

function sessionOf(body: Body, headers: IncomingHttpHeaders): string | undefined {
  if (body.pocket?.session) return body.pocket.session;
  for (const name of sessionHeaders) {
    const value = headers[name];
    if (typeof value !== "string" || value === "") continue;
    if (value.length > 256) throw badField(name, "must have at most 256 characters");
    return value;
  }
  return body.prompt_cache_key || undefined;
}
