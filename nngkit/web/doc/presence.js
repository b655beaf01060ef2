// Who else is in a document, and where. Pure: time is handed in.
//
//     presence.local = { client: 7, user: { name: "Ann", color: 3 }, cursor: { ... } };
//     presence.due(now)        // [clock, state] to be sent now, or null
//     presence.received(message, now);  presence.others      // Map from stream to state

const AGAIN = 10; // seconds after which one's own state is sent again, for who came later or missed it
const GONE = 30; // seconds without a word: three of those were lost
const PAUSE = 0.05; // between two of one's own: a cursor that moves with every key is seen to move all the same
const MOST = 256; // people

export class Presence {
  others = new Map(); // stream -> state
  #seen = new Map(); // stream -> { clock, when }
  #local = null;
  #clock = 0;
  #sent = -Infinity;
  #changed = false;

  get local() { return this.#local; }
  set local(state) {
    this.#local = state;
    this.#changed = true;
  }

  /** Say it again soon: somebody came who cannot know it. */
  repeat() { this.#changed = true; }

  due(now) {
    const pause = this.#changed ? PAUSE : AGAIN;
    if ((this.#local === null && !this.#changed) || now - this.#sent < pause) return null;
    this.#sent = now;
    this.#changed = false;
    return [++this.#clock, this.#local];
  }

  /** [clock, state] with which one leaves. */
  goodBye() { return [++this.#clock, null]; }

  /** Whether it changed anything. */
  received({ stream, clock, state }, now) {
    const seen = this.#seen.get(stream);
    if (seen ? clock <= seen.clock : this.#seen.size >= MOST) return false;
    this.#seen.set(stream, { clock, when: now });
    if (!seen && state) this.repeat();
    if (state === null) return this.others.delete(stream);
    this.others.set(stream, state);
    return true;
  }

  /** `stream` has said good-bye, or null: whoever has been silent for long. Whether anybody went. */
  gone(stream, now) {
    let went = false;
    for (const [other, { when }] of this.#seen) {
      if (other !== stream && (stream !== null || now - when < GONE)) continue;
      if (stream === null) this.#seen.delete(other); // else its clock stays: what comes late is old
      went = this.others.delete(other) || went;
    }
    return went;
  }

  /** Out of touch: nobody is known to be there. */
  forget() {
    this.others.clear();
    this.#seen.clear();
    this.#changed = true;
  }
}
