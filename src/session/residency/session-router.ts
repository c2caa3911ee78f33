// Chooses the session that serves a request: the named one; else the idle anonymous session of which most can be
// reused; else a fork of the longest exact prefix of the prompt; else a new one. A request with `fork` is always
// answered on a fork. A prompt may also wait for a similar one that is being computed. Changes nothing.
import type { Repair, Reuse } from "../../chat/chat.ts";
import { commonLength, type Span, tokensOf } from "../../text/span.ts";
import { type EditPlan, planEdit } from "../planner/edit-planner.ts";
import type { Source } from "../planner/reuse-planner.ts";
import type { Residents } from "./residents.ts";
import { Session, type Version } from "./session.ts";

export interface CheckoutRequest {
  readonly wanted: readonly Span[];
  /** The tokens of `wanted`, joined once. */
  readonly tokens: Int32Array;
  readonly name: string | undefined;
  readonly tenant?: string | undefined;
  readonly reuse: Reuse;
  readonly repair: Repair;
  /** No tokens that `wanted` does not have stay resident, and no cells that attended to them. */
  readonly forget?: boolean | undefined;
  /** Answer on a fork that is released afterwards; the session that it shares cells with does not change. */
  readonly fork?: boolean | undefined;
  /** Called when the session is deleted while it works. */
  readonly abort: () => void;
  /** The client's; ends a wait for another prompt. */
  readonly signal?: AbortSignal | undefined;
}

/** A session that serves the request, or a version of which a new session shares the first `count` cells. */
export type Route =
  | { readonly kind: "session"; readonly session: Session }
  | { readonly kind: "fork"; readonly holder: Version; readonly count: number }
  | { readonly kind: "new" };

/** A shorter shared prefix is chance and not worth a fork. */
export const minShared = 17;
/** An anonymous session loses at most this many tokens to a request that keeps nothing behind the cut. */
const maxCutInPlace = 512;
/** A prompt waits for another one to be computed if that saves at least this many tokens. */
const minAwaited = 512;

export function routeRequest(residents: Residents, request: CheckoutRequest): Route {
  const { name, tenant, reuse, tokens } = request;
  if (request.fork) return routeFork(residents, request);
  const named = name === undefined ? undefined : residents.get(name, tenant);
  if (named && !named.busy) return { kind: "session", session: named };
  if (reuse === "none") return { kind: "new" };
  const best = name === undefined ? bestInPlace(residents, request) : undefined;
  const found = residents.index.findExact(tenant, tokens);
  // The last token is always computed.
  const count = Math.min(found?.count ?? 0, tokens.length - 1);
  const shared = count >= minShared ? count : 0;
  if (best && best.tokens >= shared) return { kind: "session", session: best.session };
  return found && shared > 0 ? { kind: "fork", holder: found.holder, count: shared } : { kind: "new" };
}

/** The idle anonymous session of which most tokens can be reused in place. */
export function bestInPlace(
  residents: Residents,
  request: CheckoutRequest,
): { readonly session: Session; readonly tokens: number } | undefined {
  let best: { readonly session: Session; readonly tokens: number } | undefined;
  for (const session of residents.sessions()) {
    const tokens = tokensInPlace(session, request);
    if (tokens > (best?.tokens ?? 0)) best = { session, tokens };
  }
  return best;
}

/**
 * The named session, or any anonymous one of the tenant, shares its leading cells, approximate ones too: the request
 * is a side question of that conversation. Other sessions share exact cells only.
 */
function routeFork(residents: Residents, { name, tenant, reuse, tokens }: CheckoutRequest): Route {
  if (reuse === "none") return { kind: "new" };
  // The last token is always computed.
  const maxCount = tokens.length - 1;
  const isCandidate = (session: Session) =>
    session.tenant === tenant && (name === undefined ? !session.named : session.id === name);
  const found = residents.index.findExact(tenant, tokens);
  let best = found && { holder: found.holder, count: Math.min(found.count, maxCount) };
  for (const session of residents.sessions().filter(isCandidate)) {
    for (const holder of [session, session.previous]) {
      if (!holder) continue;
      const shared = Math.min(commonLength(tokensOf(holder.spans), tokens), maxCount);
      const isExact = reuse === "prefix" || (holder === session && session.busy);
      const count = isExact ? Math.min(shared, holder.exactLength) : shared;
      if (count > (best?.count ?? 0)) best = { holder, count };
    }
  }
  return best && best.count >= minShared ? { kind: "fork", ...best } : { kind: "new" };
}

/** A session whose prompt is being computed and that is worth waiting for. */
export function sessionToAwait(residents: Residents, request: CheckoutRequest): Session | undefined {
  const { name, reuse, tenant, tokens } = request;
  const named = name === undefined ? undefined : residents.get(name, tenant);
  if (reuse === "none" || (named && !named.busy)) return undefined;
  const prefilling = residents.index.findPrefilling(tenant, tokens);
  if (!prefilling || prefilling.count * 2 < prefilling.holder.exactTokens.length) return undefined;
  const resident = residents.index.findExact(tenant, tokens)?.count ?? 0;
  return prefilling.count - resident >= minAwaited ? prefilling.holder : undefined;
}

/** The edit that turns the version into what the request wants. */
export function planFor(
  version: Version,
  { wanted, reuse, repair, forget }: CheckoutRequest,
  sources?: readonly Source[],
): EditPlan {
  const { spans, exactLength, relocated } = version;
  const options = { reuse: forget ? "prefix" : reuse, repair, exactLength, relocated } as const;
  return planEdit(spans, wanted, sources ? { ...options, sources } : options);
}

/**
 * Whether the version before the last edit is closer to the wanted spans than the resident one. Tokens that repair
 * recomputes count as reusable, because adopted cells are not repaired in the same request: otherwise the previous
 * version would win by that alone.
 */
export function isUndo(before: EditPlan, now: EditPlan): boolean {
  const gained = reusable(before) - reusable(now);
  return gained >= minShared || (gained >= 0 && before.stale + minShared <= now.stale);
}

function reusable({ kept, relocated, cut, dropped }: EditPlan): number {
  return kept + relocated + (cut - dropped);
}

export function nameOf(holder: Version): string {
  return holder instanceof Session ? `session ${holder.id}` : "an earlier conversation";
}

/** Tokens reused by editing the session in place; 0 if it holds a different conversation. */
function tokensInPlace(session: Session, request: CheckoutRequest): number {
  if (session.busy || session.named || session.tenant !== request.tenant) return 0;
  // `forget` must find the session that holds the text, although nothing behind the edit will be reused.
  const lookup = { ...request, forget: false };
  const plan = planFor(session, lookup);
  const before = session.previous && planFor(session.previous, lookup);
  const better = before && isUndo(before, plan) ? before : plan;
  const total = plan.kept + plan.relocated + plan.computed;
  const firstSpan = session.spans[0]?.tokens.length ?? 0;
  const sharesStart = better.kept >= minShared && better.kept + 1 >= Math.min(firstSpan, total);
  const sharesHalf = better.relocated * 2 >= total;
  if (!sharesStart && !sharesHalf) return 0;
  const isOther =
    better === plan && plan.relocated === 0 && plan.cut > maxCutInPlace && session.exactLength >= plan.kept;
  return isOther ? 0 : better.kept + better.relocated;
}
