// The versions from which a session may adopt cells.
import type { Span } from "../../text/span.ts";
import type { Residents, Source } from "./residents.ts";
import type { Session } from "./session.ts";

/**
 * The session's own versions and victims. For an anonymous session, also those of idle anonymous sessions of the
 * tenant that begin with the same two spans: branches of one conversation.
 */
export function sourcesFor(residents: Residents, session: Session, wanted: readonly Span[]): Source[] {
  const isBranch = (other: Session) =>
    other !== session &&
    !other.named &&
    !other.busy &&
    other.tenant === session.tenant &&
    wanted.length > 2 &&
    [0, 1].every((index) => other.spans[index]?.key === wanted[index]!.key);
  const branches = session.named ? [] : residents.sessions().filter(isBranch);
  return [session, ...branches].flatMap((one) => ownSources(residents, one));
}

/** The session's own cells, its version before the last edit, its victims from the youngest on. */
export function ownSources(residents: Residents, session: Session): Source[] {
  return [session, session.previous, ...residents.victimsOf(session).toReversed()].flatMap((version) =>
    version && version.spans.length > 0 ? [{ sequence: version.sequence, spans: version.spans }] : [],
  );
}
