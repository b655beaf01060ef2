// Presence of the other people in a document, and their cursors. Pure: the time is a parameter.
//
//     presence.local = { client: 7, user: { name: "Ann", color: 3 }, cursor: { ... } };
//     presence.due(now)        // [clock, state] to send now, or null
//     presence.received(message, now);  presence.others      // Map from stream to state

const AGAIN = 10; // seconds after which the local state is sent again, for peers that joined later or missed it
const GONE = 30; // seconds of silence until a peer counts as gone: three states were lost
const PAUSE = 0.05; // seconds between two local states: a cursor that moves with every key still looks smooth
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

  /** Send the local state again soon: a peer has joined that cannot know it. */
  repeat() { this.#changed = true; }

  due(now) {
    const pause = this.#changed ? PAUSE : AGAIN;
    if ((this.#local === null && !this.#changed) || now - this.#sent < pause) return null;
    this.#sent = now;
    this.#changed = false;
    return [++this.#clock, this.#local];
  }

  /** [clock, state] of a goodbye. */
  goodBye() { return [++this.#clock, null]; }

  /** Apply a received state; return true if it changed anything. */
  received({ stream, clock, state }, now) {
    const seen = this.#seen.get(stream);
    if (seen ? clock <= seen.clock : this.#seen.size >= MOST) return false;
    this.#seen.set(stream, { clock, when: now });
    if (!seen && state) this.repeat();
    if (state === null) return this.others.delete(stream);
    this.others.set(stream, state);
    return true;
  }

  /** Remove `stream`, which has left, or if it is null all streams that were silent too long; return true if any was removed. */
  gone(stream, now) {
    let went = false;
    for (const [other, { when }] of this.#seen) {
      if (other !== stream && (stream !== null || now - when < GONE)) continue;
      if (stream === null) this.#seen.delete(other); // else its clock stays, so that late messages are ignored
      went = this.others.delete(other) || went;
    }
    return went;
  }

  /** Remove all users: the connection is lost. */
  forget() {
    this.others.clear();
    this.#seen.clear();
    this.#changed = true;
  }
}
