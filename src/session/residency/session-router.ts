// Which session serves a request (design §7.3): the named one; else the idle anonymous one of which most can be
// reused; else a fork of whoever holds the longest exact beginning of the prompt; else a new one. A side question
// is answered on a fork in any case; and some wait for a prompt that is being computed. It changes
// nothing: sessions of other tenants are not among those it is shown.
import type { Repair, Reuse } from "../../chat/chat.ts";
import { commonLength, type Span, tokensOf } from "../../text/span.ts";
import { type EditPlan, planEdit } from "../planner/edit-planner.ts";
import type { Source } from "../planner/reuse-planner.ts";

import type { Residents } from "./residents.ts";
import { Session, type Version } from "./session.ts";

export interface CheckoutRequest {
  readonly wanted: readonly Span[];
  /** Those of `wanted`, joined once for all who look for them. */
  readonly tokens: Int32Array;
  readonly name: string | undefined;
  readonly tenant?: string | undefined;
  readonly reuse: Reuse;
  readonly repair: Repair;
  /** Nothing that the wanted tokens do not have stays resident, nor anything that has seen it. */
  readonly forget?: boolean | undefined;
  /** Answered on a fork that is released afterwards; the session it shares cells with stays as it is. */
  readonly fork?: boolean | undefined;
  /** Called when the session is deleted while it works. */
  readonly abort: () => void;
  /** The client's; a checkout that waits for somebody stops waiting. */
  readonly signal?: AbortSignal | undefined;
}

/** A session that serves, or cells of which a new one shares the first `count`. */
export type Route =
  | { readonly kind: "session"; readonly session: Session }
  | { readonly kind: "fork"; readonly holder: Version; readonly count: number }
  | { readonly kind: "new" };

/** Sharing less than this with another conversation is chance, and not worth a fork. */
export const minShared = 17;
/** An anonymous session loses at most this many tokens to a request that keeps nothing behind the cut. */
const maxCutInPlace = 512;
/** A prompt waits for another one to be computed if that saves it so many tokens. */
const minAwaited = 512;

export function routeRequest(residents: Residents, request: CheckoutRequest): Route {
  const { name, tenant, reuse, tokens } = request;
  if (request.fork) return chooseFork(residents, request);
  const named = name === undefined ? undefined : residents.get(name, tenant);
  if (named && !named.busy) return { kind: "session", session: named };
  if (reuse === "none") return { kind: "new" };
  const best = name === undefined ? bestInPlace(residents, request) : undefined;
  const found = residents.find(tenant, tokens);
  // The last token is computed in any case.
  const count = Math.min(found?.count ?? 0, tokens.length - 1);
  const shared = count >= minShared ? count : 0;
  if (best && best.tokens >= shared) return { kind: "session", session: best.session };
  return found && shared > 0 ? { kind: "fork", holder: found.holder, count: shared } : { kind: "new" };
}

/** The idle anonymous session of which most can be reused in place. */
export function bestInPlace(
  residents: Residents,
  request: CheckoutRequest,
): { readonly session: Session; readonly tokens: number } | undefined {
  let best: { readonly session: Session; readonly tokens: number } | undefined;
  for (const session of residents.values()) {
    const tokens = tokensInPlace(session, request);
    if (tokens > (best?.tokens ?? 0)) best = { session, tokens };
  }
  return best;
}

/**
 * Whoever is named, or any anonymous session of the tenant, shares its leading cells as they are, approximate ones
 * too: what is answered is a side question of that conversation. Others share exact cells, as ever.
 */
function chooseFork(residents: Residents, { name, tenant, reuse, tokens }: CheckoutRequest): Route {
  if (reuse === "none") return { kind: "new" };
  // The last token is computed in any case.
  const most = tokens.length - 1;
  const isAsked = (session: Session) =>
    session.tenant === tenant && (name === undefined ? !session.named : session.id === name);
  const found = residents.find(tenant, tokens);
  let best = found && { holder: found.holder, count: Math.min(found.count, most) };
  for (const session of Array.from(residents.values()).filter(isAsked)) {
    for (const holder of [session, session.previous]) {
      if (!holder) continue;
      const shared = Math.min(commonLength(tokensOf(holder.spans), tokens), most);
      const isExact = reuse === "prefix" || (holder === session && session.busy);
      const count = isExact ? Math.min(shared, holder.exactLength) : shared;
      if (count > (best?.count ?? 0)) best = { holder, count };
    }
  }
  return best && best.count >= minShared ? { kind: "fork", ...best } : { kind: "new" };
}

/** A session whose prompt is being computed now and will be worth waiting for. */
export function sessionToAwait(residents: Residents, request: CheckoutRequest): Session | undefined {
  const { name, reuse, tenant, tokens } = request;
  const named = name === undefined ? undefined : residents.get(name, tenant);
  if (reuse === "none" || (named && !named.busy)) return undefined;
  const coming = residents.findComing(tenant, tokens);
  if (!coming || coming.count * 2 < coming.holder.exactTokens.length) return undefined;
  const here = residents.find(tenant, tokens)?.count ?? 0;
  return coming.count - here >= minAwaited ? coming.holder : undefined;
}

/** The edit that makes the version what the request wants. */
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
 * Whether the version before the last edit is nearer to what is wanted than the resident one. What repair computes
 * again counts as had: adopted cells are not repaired at once, and the version before would win by that alone.
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

/** Tokens reused by editing the session itself; 0 where that would not be the same conversation. */
function tokensInPlace(session: Session, request: CheckoutRequest): number {
  if (session.busy || session.named || session.tenant !== request.tenant) return 0;
  // What is to be forgotten is looked for where it is, though nothing behind it will be reused.
  const wish = { ...request, forget: false };
  const plan = planFor(session, wish);
  const before = session.previous && planFor(session.previous, wish);
  const better = before && isUndo(before, plan) ? before : plan;
  const total = plan.kept + plan.relocated + plan.computed;
  const firstSpan = session.spans[0]?.tokens.length ?? 0;
  const leads = better.kept >= minShared && better.kept + 1 >= Math.min(firstSpan, total);
  const follows = better.relocated * 2 >= total;
  if (!leads && !follows) return 0;
  const another =
    better === plan && plan.relocated === 0 && plan.cut > maxCutInPlace && session.exactLength >= plan.kept;
  return another ? 0 : better.kept + better.relocated;
}
