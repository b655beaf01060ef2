// One document of a page: decides what to send, request and apply, and when. Pure: time and randomness are parameters.
//
// Every outside event changes the state (`edited`, `received`, `answered`, `failed`, `connected`, `disconnected`); then
// `evaluate(now)` returns the actions. A page has one counterpart, its home: the peer that welcomed it.
//
//     replica.connected(welcome.stream, welcome.maxUpdate, now);
//     const { bus, ask, wake } = replica.evaluate(now);   // bytes for the BUS, one request or null, when to call again
//
// Invariants, true after every call:
// 1. `versions` is what has been applied: of each stream all edits from 1 to its number, and no other.
// 2. An edit is applied after all earlier edits of its stream and all its deps; until then it is in `held`.
// 3. Every edit of this page, of this load or an earlier one, is in `own` until its home has confirmed it.
// 4. At most one request is in progress, and none without a connection.
// 5. Own edits from `refusal` on stay in `own` and are not sent: peers cannot store that one, nor what follows it.
// 6. Held and known edits are bounded; those over the cap are requested again later, as a whole.

import { Transfer, same } from "./transfer.js";
import { covers, isOld, prune, raise, versionsDigest } from "./versions.js";
import { BUS_LIMIT, MOST_EDITS, MOST_HEADS, MOST_RANGES, encodeUpdate } from "./wire.js";

const GRACE = 0.02; // seconds for a gap to close by itself; a connection keeps the order, so longer gains little
const PATIENCE = 0.4; // seconds for an edit to appear in the home's heartbeats (0.2 s apart) before it is given again
const QUIET = 0.25; // seconds without a change until digests are compared: a little over one heartbeat of the home
const FIRST_RETRY = 0.1;
const LAST_RETRY = 10;
const MOST_HELD = 4096; // edits, and
const MOST_HELD_BYTES = 8 * 1024 * 1024;
const MOST_MISSING = 1024; // edits in gaps; above that, one diff is cheaper
const MOST_NACKS = 3; // without success, then the whole is requested
const ROOM = BUS_LIMIT - 1024; // bytes of a BUS message for edits; the rest is for its head
const PER_EDIT = 16; // bytes around a payload without deps

export class Replica {
  versions;
  own; // [{ stream, seq, update, at }], oldest first; `at`: when it was made
  refused = 0; // invalid edits and replies
  refusal = null; // the first own edit that cannot be stored: { code: "refused", why, stream, seq, local: found here }
  onOwn = () => {}; // (records, true: written | false: arrived), for the offline store
  onApplied = () => {}; // (update, Map of the versions it brought)

  #seq = 0;
  #declared = new Map(); // versions of other streams declared in the deps of earlier own edits
  #outbox = []; // { seq, payload, deps } not yet on the BUS
  #held = new Map(); // stream -> Map from seq to { payload, deps }
  #heldCount = 0;
  #heldBytes = 0;
  #known = new Map(); // stream -> highest number that the home is known to have
  #changed = new Map(); // stream -> time of its last change, latest last
  #lastChange = -Infinity;
  #digest; // of the content, cached until it changes
  #home = null; // { stream, maxUpdate, versions, differsSince, refusedGive }
  #asking = null; // the request in progress
  #transfer = null; // { transfer, versions }
  #wanted = false; // a diff is due
  #whole = false; // of the whole document, because contents differ where versions do not
  #joined = false;
  #gapSince = null;
  #giveNow = false; // the home lacks edits that nothing in progress will bring
  #giveWhole = false; // the whole document
  #giveMost = Infinity; // own edits in one give; fewer after a refusal, to find the one that is refused
  #tries = 0;
  #notBefore = -Infinity; // time of the next request

  /**
   * `engine`: see engine.js. `versions` and `own`: stored by an earlier load, with their content in the engine. `random`
   * returns numbers from 0 to 1.
   */
  constructor({ doc, stream, engine, random, versions = new Map(), own = [] }) {
    this.doc = doc;
    this.stream = stream;
    this.engine = engine;
    this.versions = new Map(versions);
    this.own = own.map((record) => ({ ...record, at: -Infinity }));
    this.random = random;
    // The content of earlier edits is in the document, but `own` has only those that have not arrived.
    for (const record of this.own) raise(this.versions, [[record.stream, record.seq]]);
    prune(this.versions);
  }

  get joined() { return this.#joined; }
  get home() { return this.#home?.stream ?? null; }
  /** Versions that the home has at least. */
  get homeVersions() { return this.#home ? new Map(this.#home.versions) : new Map(); }
  get heldCount() { return this.#heldCount; }
  /** True if the home has refused this page's edits, so that it will not get them. */
  get stuck() { return Boolean(this.#home?.refusedGive || this.refusal); }
  /** True if connected with nothing pending in either direction, as far as is known. */
  get inSync() { return this.#joined && this.own.length === 0 && this.#gap(this.#ranges()) === 0 && !this.#wanted; }

  // ---- events ----------------------------------------------------------------------------------------------------

  /** An edit of this page; `update` is already in the engine. `why`: the reason if peers cannot store it. */
  edited(update, now, why = null) {
    const seq = ++this.#seq;
    const deps = new Map();
    for (const [stream, number] of this.versions) {
      if (stream !== this.stream && number > (this.#declared.get(stream) ?? 0)) deps.set(stream, number);
    }
    raise(this.#declared, deps);
    this.#advance(this.stream, seq, now);
    const record = { stream: this.stream, seq, update, at: now };
    this.own.push(record);
    if (why) this.#refuse(record, why, true);
    if (!this.refusal) this.#outbox.push({ seq, payload: update, deps });
    this.onOwn([record], true);
    this.onApplied(update, new Map([[this.stream, seq]]));
  }

  /** A BUS message about this document: an update, or its part of a heartbeat of `from`. */
  received(message, now, from = null) {
    if (message.kind === "update") this.#take(message, now);
    else if (this.#home && from === this.#home.stream) this.#heartbeatReceived(message, now);
  }

  connected(home, maxUpdate, now) {
    this.disconnected();
    this.#home = { stream: home, maxUpdate, versions: new Map(), differsSince: null, refusedGive: false };
    this.#wanted = true;
    this.#tries = 0;
    this.#notBefore = now;
    this.#giveMost = Infinity;
    if (!this.refusal?.local) this.refusal = null; // another home, or a newer one, may store it
  }

  disconnected() {
    this.#home = this.#asking = this.#transfer = this.#gapSince = null;
    this.#joined = this.#whole = this.#giveNow = this.#giveWhole = false;
    this.#outbox.length = 0; // given when there is a home again
    this.#known.clear();
  }

  /** The reply to the request that `evaluate` returned. */
  answered(reply, now) {
    const asked = this.#asking;
    this.#asking = null;
    if (!asked) return;
    const before = this.#tally();
    try {
      if (reply.kind === "updates" && asked.kind === "nack") {
        for (const update of reply.updates) if (update.doc === this.doc) this.#take(update, now);
        this.#wanted ||= reply.rest;
      } else if (reply.kind === "diff" && asked.kind === "want") {
        if (reply.body instanceof Uint8Array) this.#takeDiff(reply.body, reply.versions, now);
        else this.#transfer = { transfer: new Transfer(reply.body), versions: reply.versions };
      } else if (reply.kind === "chunks" && asked.kind === "pull") this.#takeChunks(reply, now);
      else if (reply.kind === "given" && asked.kind === "give") {
        this.#giveMost = Infinity;
        raise(this.#home.versions, asked.carried); // also streams so old that no vector names them
        this.#homeHas(reply.versions);
      }
      else if (reply.kind === "refused") this.#notDone(asked, reply.code, reply.why);
      else throw new Error(`${reply.kind} in reply to ${asked.kind}`);
    } catch {
      this.refused += 1;
      this.#transfer = null;
      this.#wanted = true;
    }
    if (this.#tally() > before) this.#tries = 0; // progress
    else this.#retryLater(now);
  }

  /** The request got no reply, or an invalid one. */
  failed(now) {
    if (this.#asking) this.#notDone(this.#asking, "no reply");
    this.#asking = null;
    this.#retryLater(now);
  }

  // ---- actions ---------------------------------------------------------------------------------------------------

  /** Return { bus: [bytes], ask: a request for encodeRequest or null, wake: latest time of the next call, or null }. */
  evaluate(now) {
    if (!this.#home) return { bus: [], ask: null, wake: null };
    const bus = this.#flush();
    this.#forgetOwn();
    const ranges = this.#ranges();
    this.#gapSince = ranges.length ? (this.#gapSince ?? now) : null;
    if (this.#asking) return { bus, ask: null, wake: null };
    const [due, request] = this.#next(ranges);
    const at = Math.max(due, this.#notBefore);
    if (at > now) return { bus, ask: null, wake: at === Infinity ? null : at };
    const ask = request();
    this.#asking = ask;
    return { bus, ask, wake: null };
  }

  /** Return [when, () => request] of the most useful request. */
  #next(ranges) {
    const { doc } = this;
    const want = () => ({ kind: "want", doc, state: this.#whole ? null : this.engine.state(), versions: this.versions });
    if (this.#transfer) return [-Infinity, () => ({ kind: "pull", ...this.#transfer.transfer.next() })];
    if (this.#wanted) return [-Infinity, want];
    const choices = [];
    if (ranges.length) {
      const small = ranges.length <= MOST_RANGES && this.#gap(ranges) <= MOST_MISSING && this.#tries < MOST_NACKS;
      choices.push([this.#gapSince + GRACE, small ? () => ({ kind: "nack", doc, ranges }) : want]);
    }
    const sendable = this.#sendable();
    if (!this.#home.refusedGive && (!this.refusal || sendable.length)) {
      if (this.#giveNow || this.#giveWhole) choices.push([-Infinity, () => this.#give()]);
      else if (sendable.length) choices.push([sendable[0].at + PATIENCE, () => this.#give()]);
    }
    if (this.#home.differsSince !== null) choices.push([Math.max(this.#home.differsSince, this.#lastChange) + QUIET, want]);
    return choices.reduce((first, choice) => (choice[0] < first[0] ? choice : first), [Infinity, null]);
  }

  /** Return a give request with what the home lacks: this page's edits if they suffice, else the document. */
  #give() {
    const { maxUpdate, versions: theirs } = this.#home;
    const besides = new Map(this.versions);
    const mine = new Map();
    const carried = new Map();
    const records = [];
    let whole = this.#giveWhole;
    let size = 0;
    let full = false;
    for (const { stream, seq, update } of this.#sendable()) {
      besides.delete(stream);
      carried.set(stream, seq);
      full ||= records.length === this.#giveMost || (records.length > 0 && size + update.length > maxUpdate);
      if (full) continue; // for the next request
      whole ||= seq !== (mine.get(stream) ?? theirs.get(stream) ?? 0) + 1; // earlier ones went to an earlier home
      records.push(update);
      size += update.length;
      mine.set(stream, seq);
    }
    this.#giveNow = this.#giveWhole = false;
    if (!whole && records.length && covers(theirs, besides)) {
      const update = this.engine.merge(records);
      return { kind: "give", doc: this.doc, update, versions: mine, carried: mine, whole: false, count: records.length };
    }
    return { kind: "give", doc: this.doc, update: this.engine.changesSince(null), versions: new Map(this.versions), carried, whole: true };
  }

  /** Return this document's row of a heartbeat. */
  heartbeat(now) {
    const quiet = now - this.#lastChange >= QUIET;
    const heads = new Map();
    for (const stream of this.#changed.keys()) if (this.versions.has(stream)) heads.set(stream, this.versions.get(stream));
    return {
      doc: this.doc, versionsDigest: quiet ? versionsDigest(this.versions) : null,
      contentDigest: quiet ? this.#contentDigest() : null, heads,
    };
  }

  // ---- internals -------------------------------------------------------------------------------------------------

  #flush() {
    const messages = [];
    let batch = [];
    let size = 0;
    const send = () => {
      if (batch.length) messages.push(encodeUpdate(this.stream, this.doc, batch[0].seq, batch));
      batch = [];
      size = 0;
    };
    for (const edit of this.#outbox) {
      const weight = edit.payload.length + edit.deps.size * 28 + PER_EDIT;
      if (batch.length === MOST_EDITS || size + weight > ROOM) send();
      if (weight > ROOM) this.#giveNow = true; // too large for the BUS
      else {
        batch.push(edit);
        size += weight;
      }
    }
    send();
    this.#outbox.length = 0;
    return messages;
  }

  #take({ stream, first, edits }, now) {
    if (stream === this.stream) { // an echo; a number that we never assigned is forged
      if (first + edits.length - 1 > this.#seq) this.refused += 1;
      return;
    }
    if (isOld(stream, this.versions)) { // its number is no longer kept: only a whole document can bring it
      this.#wanted = true;
      return;
    }
    const have = () => this.versions.get(stream) ?? 0;
    edits.forEach((edit, i) => {
      const seq = first + i;
      if (seq <= have() || this.#held.get(stream)?.has(seq)) return;
      raise(this.#known, [[stream, seq]]);
      raise(this.#known, [...edit.deps].filter(([other]) => other !== this.stream && !isOld(other, this.versions)));
      const full = () => this.#heldCount >= MOST_HELD || this.#heldBytes + edit.payload.length > MOST_HELD_BYTES;
      if (full()) this.#release(now);
      // An edit that can be applied at once always has room: held edits may depend on it.
      if (full() && !(seq === have() + 1 && this.#ready(edit))) return;
      if (!this.#held.has(stream)) this.#held.set(stream, new Map());
      this.#held.get(stream).set(seq, edit);
      this.#heldCount += 1;
      this.#heldBytes += edit.payload.length;
    });
    this.#release(now);
  }

  /** Apply all held edits that have become ready. */
  #release(now) {
    for (let again = true; again; ) {
      again = false;
      for (const [stream, edits] of this.#held) {
        for (const seq of edits.keys()) if (seq <= (this.versions.get(stream) ?? 0)) this.#unhold(stream, seq);
        for (;;) {
          const seq = (this.versions.get(stream) ?? 0) + 1;
          const edit = edits.get(seq);
          if (!edit || !this.#ready(edit)) break;
          this.#unhold(stream, seq);
          try {
            if (edit.payload.length) this.engine.apply(edit.payload); // empty: one that its peer could not apply
          } catch {
            this.refused += 1;
            this.#wanted = true; // a peer that has applied it can send it in a diff
            break;
          }
          this.#advance(stream, seq, now);
          this.onApplied(edit.payload, new Map([[stream, seq]]));
          again = true;
        }
      }
    }
  }

  /** Return true if all its deps have been applied. */
  #ready({ deps }) {
    for (const [stream, seq] of deps) if ((this.versions.get(stream) ?? 0) < seq && !isOld(stream, this.versions)) return false;
    return true;
  }

  #unhold(stream, seq) {
    const edits = this.#held.get(stream);
    this.#heldBytes -= edits.get(seq).payload.length;
    this.#heldCount -= 1;
    edits.delete(seq);
    if (!edits.size) this.#held.delete(stream);
  }

  #takeDiff(update, versions, now) {
    this.#wanted = true; // until it is applied
    if ((versions.get(this.stream) ?? 0) > this.#seq) throw new Error("edits of this page that do not exist");
    this.engine.apply(update);
    const brought = new Map([...versions].filter(([stream, seq]) => seq > (this.versions.get(stream) ?? 0) && !isOld(stream, this.versions)));
    for (const [stream, seq] of brought) this.#advance(stream, seq, now);
    this.#digest = undefined;
    this.onApplied(update, brought);
    this.#homeHas(versions);
    this.#home.differsSince = null;
    const besides = new Map(this.versions);
    if (this.#joined) besides.delete(this.stream); // its edits may be on their way
    this.#giveNow = !covers(this.#home.versions, besides);
    this.#giveWhole = this.#whole; // the home may lack a deletion
    this.#wanted = this.#whole = false;
    this.#joined = true;
    this.#release(now);
  }

  #takeChunks(reply, now) {
    const { transfer, versions } = this.#transfer;
    if (!same(reply.transfer, transfer.id)) throw new Error("chunks of another transfer");
    if (!reply.chunks.length) throw new Error("the transfer has expired");
    transfer.take(reply.chunks);
    if (!transfer.done) return;
    this.#transfer = null;
    this.#takeDiff(transfer.body(), versions, now);
  }

  /** The home's heartbeat. */
  #heartbeatReceived({ versionsDigest: theirs, contentDigest, heads, refused }, now) {
    this.#homeHas(heads);
    for (const { stream, seq, why } of refused) {
      const record = this.own.find((one) => one.stream === stream && one.seq === seq);
      if (record) this.#refuse(record, why);
    }
    raise(this.#known, [...heads].filter(([stream]) => stream !== this.stream && !isOld(stream, this.versions)));
    if (theirs === null) this.#home.differsSince = null;
    if (theirs === null || now - this.#lastChange < QUIET) return; // either side is changing
    const equal = same(theirs, versionsDigest(this.versions));
    if (equal) this.#homeHas(this.versions);
    const mine = equal && contentDigest ? this.#contentDigest() : null;
    const broken = mine !== null && !same(contentDigest, mine);
    this.#whole = broken;
    this.#home.differsSince = equal && !broken ? null : (this.#home.differsSince ?? now);
  }

  #homeHas(versions) {
    raise(this.#home.versions, versions);
    this.#forgetOwn();
  }

  #forgetOwn() {
    const arrived = this.own.filter(({ stream, seq }) => seq <= (this.#home.versions.get(stream) ?? 0));
    if (!arrived.length) return;
    this.own = this.own.filter(({ stream, seq }) => seq > (this.#home.versions.get(stream) ?? 0));
    if (arrived.some(({ stream, seq }) => stream === this.refusal?.stream && seq === this.refusal.seq)) this.refusal = null;
    this.onOwn(arrived, false);
  }

  /** Return the own edits before the refused one. */
  #sendable() {
    if (!this.refusal) return this.own;
    const at = this.own.findIndex(({ stream, seq }) => stream === this.refusal.stream && seq >= this.refusal.seq);
    return at < 0 ? this.own : this.own.slice(0, at);
  }

  /** Record that peers cannot store an own edit, unless an earlier one is refused already. */
  #refuse(record, why, local = false) {
    if (this.refusal && !this.#sendable().includes(record)) return;
    this.refusal = { code: "refused", why, stream: record.stream, seq: record.seq, local };
    this.#outbox = this.#outbox.filter(({ seq }) => record.stream === this.stream && seq < record.seq);
  }

  /** Return the edits that the home has and we neither have nor hold: [{ stream, first, last }]. */
  #ranges() {
    const ranges = [];
    for (const [stream, last] of this.#known) {
      let first = (this.versions.get(stream) ?? 0) + 1;
      if (first > last) {
        this.#known.delete(stream);
        continue;
      }
      const held = [...(this.#held.get(stream)?.keys() ?? [])].sort((a, b) => a - b);
      for (const seq of [...held, last + 1]) {
        if (seq > first) ranges.push({ stream, first, last: seq - 1 });
        first = Math.max(first, seq + 1);
      }
    }
    return ranges;
  }

  #gap(ranges) {
    return ranges.reduce((sum, { first, last }) => sum + last - first + 1, 0);
  }

  #advance(stream, seq, now) {
    const isNew = !this.versions.has(stream);
    this.versions.set(stream, seq);
    if (isNew) prune(this.versions);
    this.#changed.delete(stream);
    this.#changed.set(stream, now); // a Map keeps insertion order
    if (this.#changed.size > MOST_HEADS) this.#changed.delete(this.#changed.keys().next().value);
    this.#lastChange = now;
    this.#digest = undefined;
  }

  #contentDigest() {
    if (this.#digest === undefined) this.#digest = this.engine.digest(); // null: it has none
    return this.#digest;
  }

  /** Return a sum that grows with every kind of progress a reply can bring. */
  #tally() {
    let sum = this.#joined ? 1 : 0;
    for (const seq of this.versions.values()) sum += seq;
    for (const seq of this.#home?.versions.values() ?? []) sum += seq;
    return sum + this.#heldCount + (this.#transfer ? 1 + this.#transfer.transfer.taken : 0);
  }

  #notDone(asked, code, why = "") {
    if (asked.kind === "pull") this.#transfer = code === "no reply" ? this.#transfer : null;
    if (asked.kind !== "give") return;
    this.#giveNow = true;
    this.#giveWhole = asked.whole;
    if (code === "no reply" || code === "busy") return;
    const [record] = this.#sendable();
    if (!["refused", "bad", "too-large"].includes(code) || !record) this.#home.refusedGive = true; // it would be refused again
    else if (asked.count > 1) this.#giveMost = Math.ceil(asked.count / 2);
    else {
      this.#refuse(record, why);
      this.#giveWhole = false;
    }
  }

  #retryLater(now) {
    const wait = Math.min(LAST_RETRY, FIRST_RETRY * 2 ** this.#tries);
    this.#tries += 1;
    this.#notBefore = now + wait * (0.5 + this.random());
  }
}
