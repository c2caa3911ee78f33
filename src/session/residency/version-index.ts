// The prefix index over everything that is resident: sessions, versions before an edit and cached prefixes.
import { type Found, PrefixIndex } from "./prefix-index.ts";
import { Session, type Version } from "./session.ts";

export class VersionIndex extends PrefixIndex<Version> {
  /** The version of the tenant that shares the longest exact prefix of `wanted` now. */
  findExact(tenant: string | undefined, wanted: Int32Array, except?: Session): Found<Version> | undefined {
    return this.find(tenant, wanted, (holder) =>
      holder === except || holder === except?.previous ? 0 : holder.exactLength,
    );
  }

  /** The same for sessions whose prompt is being computed, as if it were already computed. */
  findPrefilling(tenant: string | undefined, wanted: Int32Array): Found<Session> | undefined {
    const isPrefilling = (holder: Version) =>
      holder instanceof Session && holder.prefilling && !holder.waiting;
    const found = this.find(tenant, wanted, (holder) =>
      isPrefilling(holder) ? Number.POSITIVE_INFINITY : 0,
    );
    return found?.holder instanceof Session ? { holder: found.holder, count: found.count } : undefined;
  }
}
