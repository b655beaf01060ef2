// A page as a peer: joins a home over REQ, receives and sends on its BUS, and reconnects when either is lost.
//
//     const peer = new Peer({ addresses: ["ws://*:4712/repair"], token, name: "Ann", host: location.hostname, WebSocket });
//     peer.onState = (state, why, code) => ...;     // "connecting", "online", "offline" (retries), "refused" (does not)
//     // code, with "refused": "token", "version", "store" (this address serves another one now) ...
//     const room = await peer.open("minutes", keep);        // edit room.ydoc; room.presence has the other people
//     peer.start();
//
// A hello gets a question: the token is proven, not sent. Then the welcome has an address of the BUS for one connection, within
// 10 s. replica.js makes all decisions of the protocol; clocks, timers and sockets are here.

import * as Y from "yjs";
import { Engine, REMOTE } from "./engine.js";
import { sign } from "./guest.js";
import { BUS, LinkLost, REP, Requests, dialable, open } from "./link.js";
import { Presence } from "./presence.js";
import { ASKED, ASKING, NONCE, mac } from "./proof.js";
import { Replica } from "./replica.js";
import { hex, streamName, streamParts, unhex, versionsDigest } from "./versions.js";
import { BadMessage, REQUEST_LIMIT, decodeBus, decodeReply, encodeAwareness, encodeHeartbeat, encodeBye, encodeRequest } from "./wire.js";

const TICK = 50; // ms
const HEARTBEAT = 0.2; // seconds between heartbeats after an edit, and
const IDLE_HEARTBEAT = 1; // at rest
const RECENT = 2; // seconds for which an edit counts as recent
const CONNECTING = 5; // seconds for a connection, and for a hello
const REPLYING = 5; // seconds for a reply, and
const BULK = 30; // for a large one
const SILENCE = 4; // seconds without a message from a home that sends five heartbeats a second, before it is probed
const FIRST_RETRY = 0.1;
const LAST_RETRY = 1.5; // with the random part 2.25 s: a page is back within 5 s of its network, a try that takes 2 s included
const MOST_WAITING = 1 << 20; // bytes that the browser may buffer for the BUS; above that edits are given by request
const SAVING = 5; // seconds for the home to confirm that everything is on its disk
const GIVING = REQUEST_LIMIT - 128 * 1024; // bytes of a request for the update; the rest is for a full version vector

/** Return a stream for this load: with the origin of `before`, if there is one, and an epoch that has not been used. */
export function freshStream(random, milliseconds, before = null) {
  const epoch = milliseconds * 4096 + Math.floor(random() * 4096);
  if (before === null) return streamName(Uint8Array.from({ length: 8 }, () => Math.floor(random() * 256)), epoch);
  const [origin, last] = streamParts(before);
  return streamName(origin, Math.max(epoch, last + 1)); // clocks may be set back
}

export class Peer {
  rooms = new Map(); // document -> Room
  state = "offline";
  home = null; // { stream, name, documents }
  onState = () => {}; // (state, why, code)
  onRoom = () => {}; // (room): a change of the room outside its ydoc

  #options;
  #requests = null;
  #bus = null;
  #stopped = true;
  #failures = 0;
  #retry = null;
  #timer = null;
  #lastReceived = 0;
  #probing = false;
  #lastHeartbeat = -Infinity;

  /** `guest`: a pass (guest.js), in place of a token. `store`: the origin (16 hex digits) of the only store to join; any other value: whichever is served. */
  constructor({ addresses, token = null, guest = null, subtle = globalThis.crypto?.subtle, name = null, store = null, host, WebSocket, random, stream, now = () => performance.now() / 1000, beforeJoining = async () => {} }) {
    this.#options = { addresses, token, guest, subtle, store: /^[0-9a-f]{16}$/.test(store) ? store : null, host, WebSocket, random, now, beforeJoining };
    this.name = name;
    this.stream = stream ?? freshStream(random, Date.now());
  }

  get token() { return this.#options.token; }
  set token(token) { this.#options.token = token; }

  /** Open a document, with what `keep` (null: nothing) has stored of it. */
  async open(doc, keep) {
    const kept = keep ? await keep.load(doc, Y.mergeUpdates) : { update: null, versions: new Map(), own: [] };
    const room = new Room(doc, this.stream, kept, this.#options.random, this.#options.now, () => this.#soon(room));
    if (keep) {
      room.replica.onApplied = (update, brought) => keep.applied(doc, update, brought);
      room.replica.onOwn = (records, written) => keep.own(doc, records, written);
    }
    this.rooms.set(doc, room);
    if (this.#requests) this.#enter(room);
    return room;
  }

  start() {
    this.#stopped = false;
    this.#timer ??= setInterval(() => this.#tick(), TICK);
    this.retryNow();
  }

  /** Say goodbye and close. */
  stop() {
    this.#stopped = true;
    clearInterval(this.#timer);
    this.#timer = null;
    for (const room of this.rooms.values()) this.#sendState(room, room.presence.goodBye());
    this.#send(encodeBye(this.stream));
    this.#lost("offline", "closed");
  }

  /** Reconnect without waiting: the network is back, or the token has changed. */
  retryNow() {
    clearTimeout(this.#retry);
    this.#retry = null;
    this.#failures = 0;
    if (!this.#stopped && this.state !== "online" && this.state !== "connecting") this.#connect();
  }

  /** The browser reports that the network is down. */
  disconnect(why) {
    if (this.state === "online") this.#lost("offline", why);
  }

  // ---- the connection ----------------------------------------------------------------------------------------------

  async #connect() {
    const { addresses, host, WebSocket, random, now, beforeJoining } = this.#options;
    this.#become("connecting", null);
    const address = dialable(addresses[this.#failures % addresses.length] ?? "", host);
    let bus = null;
    let requests = null;
    const give = (state, why, code = null) => {
      requests?.close();
      bus?.close();
      this.#lost(state, why, code);
    };
    try {
      if (address === null) throw new BadMessage("configuration", "there is no address that a page can dial");
      const sure = await beforeJoining();
      const socket = await open(address, REP, { WebSocket, timeout: CONNECTING });
      requests = new Requests(socket, random);
      const welcome = await this.#welcome(requests, new URL(address));
      if (welcome.kind === "refused") return give(welcome.code === "busy" ? "offline" : "refused", welcome.why, welcome.code);
      if (welcome.kind !== "welcome") throw new BadMessage("reply", `${welcome.kind} to a hello`);
      if (sure === false && this.home && hex(streamParts(this.home.stream)[0]) !== hex(streamParts(welcome.stream)[0])) {
        throw new LinkLost("cannot verify yet that this is the same peer as before");
      }
      const busAddress = welcome.bus.map((one) => dialable(one, host)).find((one) => one !== null);
      if (!busAddress) throw new BadMessage("reply", "the peer has no BUS that a page can dial");
      bus = await open(busAddress, BUS, { WebSocket, timeout: CONNECTING });
      if (this.#stopped || socket.readyState !== 1) throw new LinkLost("the connection has ended");
      bus.onmessage = ({ data }) => this.#heardBus(data);
      bus.onclose = socket.onclose = () => this.#requests === requests && this.#lost("offline", "the connection has ended");
      this.#bus = bus;
      this.#requests = requests;
      this.#lastReceived = now();
      this.#failures = 0;
      this.home = { stream: welcome.stream, name: welcome.name, documents: welcome.documents, maxUpdate: Math.min(welcome.maxUpdate, GIVING) };
      this.#sendHeartbeat(now()); // messages on a BUS are ignored until a first one has named their sender
      this.#become("online", null);
      for (const room of this.rooms.values()) this.#enter(room);
    } catch (error) {
      // A lost connection may come back; a wrong peer, or one of another protocol, does not change by retrying.
      give(error instanceof BadMessage || error.final ? "refused" : "offline", error.message, error.code ?? null);
    }
    return undefined;
  }

  /** Send a hello and, if it is asked for, the proof of the token or of a guest's name; return the reply. */
  async #welcome(requests, address) {
    const { store, random, guest, subtle } = this.#options;
    const about = { name: this.name, documents: [...this.rooms.keys()], store: store && unhex(store) };
    const ask = async (request) => decodeReply(await requests.ask(encodeRequest(this.stream, request), CONNECTING));
    const reply = await ask({ kind: "hello", ...about });
    if (reply.kind !== "prove") return reply;
    const { nonce } = reply;
    if (guest !== null) {
      if (address === null) throw new LinkLost("the name has to be proven again");
      if (!subtle) return { kind: "refused", code: "insecure", why: "this page is on plain http" };
      const proof = await sign(subtle, guest, nonce, address.host, address.pathname);
      return ask({ kind: "proof", nonce, own: nonce, proof, certificate: guest.certificate, ...about });
    }
    if (!this.token) return { kind: "refused", code: "token", why: "the token is wrong or missing" };
    const own = Uint8Array.from({ length: NONCE }, () => Math.floor(random() * 256));
    const welcome = await ask({ kind: "proof", nonce, own, proof: mac(this.token, ASKING, nonce, own, this.stream), ...about });
    if (welcome.kind === "welcome" && (!welcome.mac || hex(welcome.mac) !== hex(mac(this.token, ASKED, nonce, own, this.stream)))) {
      return { kind: "refused", code: "token", why: "the peer does not know this key" };
    }
    return welcome;
  }

  #enter(room) {
    room.replica.connected(this.home.stream, this.home.maxUpdate, this.#options.now());
    room.presence.forget();
    room.homeRefusal = null;
    this.#step(room);
  }

  #lost(state, why, code = null) {
    const [bus, requests] = [this.#bus, this.#requests];
    this.#bus = this.#requests = null;
    if (bus) bus.onclose = bus.onmessage = null;
    bus?.close();
    requests?.close();
    for (const room of this.rooms.values()) {
      room.replica.disconnected();
      room.presence.forget();
      room.saved = null;
      this.onRoom(room);
    }
    this.#become(state, why, code);
    if (this.#stopped || state === "refused" || this.#retry !== null) return;
    const wait = Math.min(LAST_RETRY, FIRST_RETRY * 2 ** this.#failures++) * (0.5 + this.#options.random());
    this.#retry = setTimeout(() => {
      this.#retry = null;
      this.#connect();
    }, wait * 1000);
  }

  #become(state, why, code = null) {
    this.state = state;
    this.onState(state, why, code);
  }

  // ---- sending -----------------------------------------------------------------------------------------------------

  #send(bytes) {
    if (this.#bus?.readyState === 1 && this.#bus.bufferedAmount < MOST_WAITING) this.#bus.send(bytes);
  }

  /** Run a step soon, so that the edits of one moment go out as one message. */
  #soon(room) {
    if (room.stepping) return;
    room.stepping = true;
    setTimeout(() => {
      room.stepping = false;
      this.#step(room);
    }, 5); // ms
  }

  #step(room) {
    const { bus, ask } = room.replica.evaluate(this.#options.now());
    for (const bytes of bus) this.#send(bytes);
    if (ask) this.#ask(room, ask);
    this.onRoom(room);
  }

  async #ask(room, request) {
    const requests = this.#requests;
    let reply = null;
    try {
      reply = decodeReply(await requests.ask(encodeRequest(this.stream, request), request.kind === "nack" ? REPLYING : BULK));
    } catch (error) {
      if (!(error instanceof LinkLost || error instanceof BadMessage)) throw error;
    }
    if (requests !== this.#requests) return; // of a lost connection; the replica has been notified
    if (reply?.kind === "refused" && reply.code === "token") {
      this.#lost("refused", reply.why, reply.code);
      return;
    }
    if (reply?.kind === "prove") { // it has forgotten this connection
      this.#lost("offline", "the key has to be proven again");
      return;
    }
    room.homeRefusal = reply?.kind === "refused" && !(request.kind === "give" && room.replica.own.length) ? reply : null;
    if (reply === null) room.replica.failed(this.#options.now());
    else room.replica.answered(reply, this.#options.now());
    this.#step(room);
  }

  #tick() {
    if (!this.#requests) return;
    const now = this.#options.now();
    for (const room of this.rooms.values()) {
      this.#sendState(room, room.presence.due(now));
      if (room.presence.gone(null, now)) this.onRoom(room);
      this.#step(room);
      this.#askWhetherSaved(room, now);
    }
    const edited = [...this.rooms.values()].some((room) => now - room.edited < RECENT);
    if (now - this.#lastHeartbeat >= (edited ? HEARTBEAT : IDLE_HEARTBEAT)) this.#sendHeartbeat(now);
    if (now - this.#lastReceived > SILENCE && !this.#probing) this.#probe();
  }

  #sendHeartbeat(now) {
    this.#lastHeartbeat = now;
    const rooms = [...this.rooms.values()];
    const clients = new Map(rooms.map((room) => [room.doc, room.ydoc.clientID]));
    this.#send(encodeHeartbeat(this.stream, this.name, clients, rooms.map((room) => room.replica.heartbeat(now))));
  }

  #sendState(room, due) {
    if (due) this.#send(encodeAwareness(this.stream, room.doc, due[0], due[1]));
  }

  /** Check a silent connection: it may be dead. */
  async #probe() {
    const requests = this.#requests;
    this.#probing = true;
    try {
      await this.#welcome(requests, null);
      this.#lastReceived = this.#options.now();
    } catch {
      if (requests === this.#requests) this.#lost("offline", "the peer is silent");
    } finally {
      this.#probing = false;
    }
  }

  async #askWhetherSaved(room, now) {
    const { replica } = room;
    if (room.saving || now < room.askAgain || !replica.inSync || !replica.versions.size) return;
    const digest = hex(versionsDigest(replica.versions));
    if (room.saved === digest) return;
    room.saving = true;
    const requests = this.#requests;
    let yes = false;
    try {
      const request = { kind: "have", doc: room.doc, versions: replica.versions, durable: true, wait: SAVING };
      const reply = decodeReply(await requests.ask(encodeRequest(this.stream, request), SAVING + REPLYING));
      yes = reply.kind === "has" && reply.yes;
    } catch (error) {
      if (!(error instanceof LinkLost || error instanceof BadMessage)) throw error;
    } finally {
      room.saving = false;
    }
    room.askAgain = this.#options.now() + (yes ? 0.5 : SAVING);
    if (yes && requests === this.#requests) room.saved = digest;
    this.onRoom(room);
  }

  // ---- receiving ---------------------------------------------------------------------------------------------------

  #heardBus(data) {
    const now = this.#options.now();
    this.#lastReceived = now;
    let message;
    try {
      message = decodeBus(new Uint8Array(data));
    } catch (error) {
      if (!(error instanceof BadMessage || error instanceof TypeError)) throw error; // TypeError: a text message
      return;
    }
    if (message.stream === this.stream && message.kind !== "update") return; // an echo
    const room = this.rooms.get(message.doc);
    switch (message.kind) {
      case "update":
        if (!room) return;
        room.replica.received(message, now);
        this.#step(room);
        break;
      case "heartbeat":
        for (const row of message.docs) {
          const one = this.rooms.get(row.doc);
          one?.replica.received(row, now, message.stream);
          if (one) this.#step(one);
        }
        break;
      case "awareness":
        if (room?.presence.received(message, now)) this.onRoom(room);
        break;
      default: // a goodbye
        for (const one of this.rooms.values()) if (one.presence.gone(message.stream, now)) this.onRoom(one);
    }
  }
}

export class Room {
  homeRefusal = null; // the home's refusal of this document
  saved = null; // digest of the versions that the home has on its disk
  saving = false;
  askAgain = -Infinity;
  stepping = false;
  edited = -Infinity;
  presence = new Presence();

  constructor(doc, stream, { update, versions, own }, random, now, soon) {
    this.doc = doc;
    this.ydoc = new Y.Doc(); // with its own client id, as every load must have
    if (update) Y.applyUpdate(this.ydoc, update, REMOTE);
    const engine = new Engine(this.ydoc);
    this.replica = new Replica({ doc, stream, engine, random, versions, own });
    this.ydoc.on("update", () => { this.edited = now(); });
    engine.onEdit = (written, why) => {
      this.replica.edited(written, now(), why);
      soon();
    };
  }

  /** Why something here cannot be stored, { code, why }: the document, or (code "refused") the own edits from one on. */
  get refusal() { return this.replica.refusal ?? this.homeRefusal; }

  /** True if the home has everything on its disk. */
  get isSaved() { return this.replica.inSync && this.saved === hex(versionsDigest(this.replica.versions)); }
}
