import fc from "fast-check";
import { expect, test } from "vitest";
import { Admission } from "../../src/server/middleware/admission.ts";

interface Guest {
  state: "asked" | "inside" | "left" | "gone" | "refused";
  readonly controller: AbortController;
  leave: (() => void) | null;
}

/** A dumber model of the same context: a list of guests, looked through from the front. */
class PlainDoor {
  readonly inside: number[] = [];
  readonly queue: number[] = [];
  constructor(
    private readonly active: number,
    private readonly queued: number,
  ) {}

  arrive(guest: number): boolean {
    if (this.inside.length < this.active) this.inside.push(guest);
    else if (this.queue.length < this.queued) this.queue.push(guest);
    else return false;
    return true;
  }

  depart(guest: number): void {
    if (this.queue.includes(guest)) this.queue.splice(this.queue.indexOf(guest), 1);
    if (!this.inside.includes(guest)) return;
    this.inside.splice(this.inside.indexOf(guest), 1);
    if (this.queue.length > 0) this.inside.push(this.queue.shift()!);
  }
}

test("random arrivals, departures and hang-ups leave the context as a plain list would have it", async () => {
  const moves = fc.array(fc.oneof(fc.constant(null), fc.nat(30)), { maxLength: 60 });
  await fc.assert(
    fc.asyncProperty(fc.integer({ min: 1, max: 3 }), fc.nat(3), moves, async (active, queued, script) => {
      const admission = new Admission(active, queued);
      const context = new PlainDoor(active, queued);
      const guests: Guest[] = [];
      for (const move of script) {
        if (move === null) {
          const expected = context.arrive(guests.length);
          const guest = knock(admission);
          guests.push(guest);
          await settle();
          expect(guest.state === "refused").toBe(!expected);
        } else if (move < guests.length) {
          context.depart(move);
          guests[move]!.controller.abort(new Error("gone"));
          guests[move]!.leave?.();
          guests[move]!.leave?.();
          await settle();
        }
        expect(admission.counts).toEqual({ active: context.inside.length, queued: context.queue.length });
        for (const guest of context.inside) expect(guests[guest]!.leave).not.toBeNull();
      }
    }),
    { numRuns: 100 },
  );
});

function knock(admission: Admission): Guest {
  const guest: Guest = { state: "asked", controller: new AbortController(), leave: null };
  admission.enter(guest.controller.signal).then(
    (leave) => {
      guest.state = "inside";
      guest.leave = leave;
    },
    (cause) => {
      guest.state = cause.code === "QUEUE_FULL" ? "refused" : "gone";
    },
  );
  return guest;
}

async function settle(): Promise<void> {
  for (let turn = 0; turn < 5; turn++) await Promise.resolve();
}
