// Which session serves a request (design §7.3): the named one; else the idle anonymous one of which most can be
// reused; else a fork of whoever holds the longest exact beginning of the prompt; else a new one. It changes
// nothing: sessions of other tenants are not among those it is shown.
import type { Repair, Reuse } from "../context/chat.ts";
import type { Span } from "../text/span.ts";
import { tokensOf } from "../text/span.ts";
import { type Plan, planEdit } from "./diff.ts";
import type { Residents } from "./residents.ts";
import { Session, type Version } from "./session.ts";

export interface CheckoutRequest {
  readonly wanted: readonly Span[];
  readonly name: string | undefined;
  readonly tenant?: string | undefined;
  readonly reuse: Reuse;
  readonly repair: Repair;
  /** Nothing that the wanted tokens do not have stays resident, nor anything that has seen it. */
  readonly forget?: boolean | undefined;
  /** Called when the session is deleted while it works. */
  readonly abort: () => void;
  /** The client's; a checkout that waits for somebody stops waiting. */
  readonly signal?: AbortSignal | undefined;
}

/** A session that serves, or cells of which a new one shares the first `count`. */
export type Choice =
  | { readonly kind: "session"; readonly session: Session }
  | { readonly kind: "fork"; readonly holder: Version; readonly count: number }
  | { readonly kind: "new" };

/** Sharing less than this with another conversation is chance, and not worth a fork. */
export const leastShared = 17;
/** An anonymous session loses at most this many tokens to a request that keeps nothing behind the cut. */
const mostCutInPlace = 512;

export function choose(residents: Residents, request: CheckoutRequest): Choice {
  const { name, tenant, reuse, wanted } = request;
  const named = name === undefined ? undefined : residents.get(name, tenant);
  if (named && !named.busy) return { kind: "session", session: named };
  if (reuse === "none") return { kind: "new" };
  let best: { readonly session: Session; readonly tokens: number } | undefined;
  for (const session of name === undefined ? residents.values() : []) {
    const tokens = tokensInPlace(session, request);
    if (tokens > (best?.tokens ?? 0)) best = { session, tokens };
  }
  const tokens = tokensOf(wanted);
  const found = residents.find(tenant, tokens);
  // The last token is computed in any case.
  const count = Math.min(found?.count ?? 0, tokens.length - 1);
  const shared = count >= leastShared ? count : 0;
  if (best && best.tokens >= shared) return { kind: "session", session: best.session };
  return found && shared > 0 ? { kind: "fork", holder: found.holder, count: shared } : { kind: "new" };
}

/** The edit that makes the version what the request wants. */
export function planFor(version: Version, { wanted, reuse, repair, forget }: CheckoutRequest): Plan {
  const { spans, exactLength, relocated } = version;
  return planEdit(spans, wanted, { reuse: forget ? "prefix" : reuse, repair, exactLength, relocated });
}

/** Whether the version before the last edit is nearer to what is wanted than the resident one. */
export function isUndone(before: Plan, now: Plan): boolean {
  const gained = before.kept + before.relocated - (now.kept + now.relocated);
  return gained >= leastShared || (gained >= 0 && before.stale + leastShared <= now.stale);
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
  const better = before && isUndone(before, plan) ? before : plan;
  const total = plan.kept + plan.relocated + plan.computed;
  const firstSpan = session.spans[0]?.tokens.length ?? 0;
  const leads = better.kept >= leastShared && better.kept + 1 >= Math.min(firstSpan, total);
  const follows = better.relocated * 2 >= total;
  if (!leads && !follows) return 0;
  const another =
    better === plan && plan.relocated === 0 && plan.cut > mostCutInPlace && session.exactLength >= plan.kept;
  return another ? 0 : better.kept + better.relocated;
}
