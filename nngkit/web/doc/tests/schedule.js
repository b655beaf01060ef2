// One page without a browser, for schedules that another program makes: a replica and a Y.Doc behind lines of JSON.
//
//     node nngkit/web/doc/tests/schedule.js
//
// Each line on stdin is one command, each gets exactly one line on stdout, in order. Time, randomness and the network belong
// to the caller: `now` (seconds) comes with every command and never goes back, `seed` at the start; nothing here waits.
// Bytes are lower-case hexadecimal. The bytes of messages are those of the wire (docs/wire.md, "Documents"), without the
// header of 4 bytes that a request has on a socket: it is the program's.
//
//     {"do": "start", "now": 0, "doc": "d", "origin": "0102030405060708", "epoch": 1, "client": 7, "seed": 1}
//                                        first, and again for the next schedule. A replica with an empty document, not
//                                        connected. "roots": {"text": "body", "map": ..., "array": ...} names those of
//                                        random edits and of "value" otherwise
//     {"do": "connected", "now": t, "home": ["0102...", 5], "max_update": 4194304}
//                                        the reply to the hello: its stream and limit
//     {"do": "disconnected", "now": t}   requests in progress are lost; editing continues
//     {"do": "deliver", "now": t, "message": "..."}                  a message from the BUS
//     {"do": "reply", "now": t, "id": 3, "message": "..." | null}    the reply to its request 3; null: lost, timed out
//     {"do": "edit", "now": t, "edit": [...]}                        one transaction, positions and lengths in code points:
//           ["insert", text root, position, "text"]      ["delete", text root, position, length]
//           ["set", map root, key, value]                ["remove", map root, key]
//           ["push", array root, value]                  ["random"]: one of these, by the seed, in the roots
//     {"do": "tick", "now": t}           run what is due
//     {"do": "heartbeat", "now": t}      put the replica's heartbeat on the BUS
//     {"do": "restart", "now": t, "epoch": 2, "client": 8}
//                                        a new load of the page: a new stream of the same origin, with the stored state.
//                                        "crash": true: without the edits since the last "kept"
//     {"do": "kept", "now": t}           edits up to here survive a crash
//     {"do": "state", "now": t}          adds to the answer: "versions", "content" (hexadecimal digest), "value"
//                                        ({"text", "map", "array"}), "joined", "in_sync", "stuck", "held", "own" (edits that
//                                        the home is not known to have), "refused"
//
// The reply to each:
//
//     {"bus": ["..."], "ask": [{"id": 3, "message": "..."}], "wake": 1.25}      messages to send, and when the next tick is due
//     {"error": "..."}                                                         the command failed; nothing happened
//
// `ask` holds at most one request; there is no other until it was answered or lost.

import { createInterface } from "node:readline";
import * as Y from "yjs";
import { Engine, REMOTE } from "../engine.js";
import { Replica } from "../replica.js";
import { hex, streamName, toWire, unhex } from "../versions.js";
import { BadMessage, decodeBus, decodeReply, encodeHeartbeat, encodeRequest } from "../wire.js";

const LETTERS = ["a", "b", " ", "\n", "é", "ß", "中", "😀", "👩‍🚀"]; // the last is three code points, five units of UTF-16

class Page {
  #ids = 0;
  #asked = null;
  #refused = 0; // messages that could not be read

  constructor({ doc, origin, epoch, client, seed, roots = { text: "text", map: "map", array: "array" } }) {
    this.doc = doc;
    this.roots = roots;
    this.origin = unhex(origin);
    this.random = mulberry(seed);
    this.#load(epoch, client, { update: null, versions: new Map(), own: [] });
    this.#keep();
  }

  #load(epoch, client, { update, versions, own }) {
    this.stream = streamName(this.origin, epoch);
    this.ydoc = new Y.Doc();
    this.ydoc.clientID = client;
    for (const [kind, root] of Object.entries(this.roots)) this.#root(kind, root);
    if (update) Y.applyUpdate(this.ydoc, update, REMOTE);
    const engine = new Engine(this.ydoc);
    this.replica = new Replica({ doc: this.doc, stream: this.stream, engine, random: this.random, versions, own });
    engine.onEdit = (written) => this.replica.edited(written, this.now);
    this.#asked = null;
  }

  #root(kind, root = this.roots[kind]) {
    return { text: () => this.ydoc.getText(root), map: () => this.ydoc.getMap(root), array: () => this.ydoc.getArray(root) }[kind]();
  }

  #keep() {
    const { versions, own } = this.replica;
    this.store = { update: Y.encodeStateAsUpdate(this.ydoc), versions: new Map(versions), own: [...own] };
  }

  command(line) {
    const { replica } = this;
    const more = {};
    let bus = [];
    this.now = line.now;
    switch (line.do) {
      case "connected":
        this.#asked = null;
        replica.connected(streamName(unhex(line.home[0]), line.home[1]), line.max_update, line.now);
        break;
      case "disconnected":
        this.#asked = null;
        replica.disconnected();
        break;
      case "deliver":
        this.#deliver(unhex(line.message), line.now);
        break;
      case "reply":
        this.#reply(line.id, line.message === null ? null : unhex(line.message), line.now);
        break;
      case "edit":
        this.#edit(line.edit);
        break;
      case "heartbeat":
        bus = [encodeHeartbeat(this.stream, null, new Map([[this.doc, this.ydoc.clientID]]), [replica.heartbeat(line.now)])];
        break;
      case "kept":
        this.#keep();
        break;
      case "restart":
        if (!line.crash) this.#keep();
        this.#load(line.epoch, line.client, this.store);
        break;
      case "state":
        Object.assign(more, this.#state());
        break;
      case "tick":
        break;
      default:
        throw new Error(`no command is called ${line.do}`);
    }
    const { bus: sent, ask, wake } = this.replica.evaluate(line.now);
    if (ask) this.#asked = { id: ++this.#ids, message: hex(encodeRequest(this.stream, ask)) };
    return { bus: [...sent, ...bus].map(hex), ask: ask ? [this.#asked] : [], wake, ...more };
  }

  #deliver(bytes, now) {
    try {
      const message = decodeBus(bytes);
      if (message.kind === "update" && message.doc === this.doc) this.replica.received(message, now);
      if (message.kind !== "heartbeat") return;
      for (const row of message.docs) if (row.doc === this.doc) this.replica.received(row, now, message.stream);
    } catch (error) {
      if (!(error instanceof BadMessage)) throw error;
      this.#refused += 1;
    }
  }

  #reply(id, bytes, now) {
    if (this.#asked?.id !== id) return; // too late: of a connection that is gone
    this.#asked = null;
    try {
      if (bytes === null) this.replica.failed(now);
      else this.replica.answered(decodeReply(bytes), now);
    } catch (error) {
      if (!(error instanceof BadMessage)) throw error;
      this.#refused += 1;
      this.replica.failed(now);
    }
  }

  #edit([what, root, ...rest]) {
    if (what === "random") return this.#edit(this.#anEdit());
    const text = () => this.ydoc.getText(root);
    const units = (points, from = 0) => [...text().toString()].slice(from, from + points).join("").length;
    this.ydoc.transact(() => {
      if (what === "insert") text().insert(units(rest[0]), rest[1]);
      else if (what === "delete") text().delete(units(rest[0]), units(rest[1], rest[0]));
      else if (what === "set") this.ydoc.getMap(root).set(rest[0], rest[1]);
      else if (what === "remove") this.ydoc.getMap(root).delete(rest[0]);
      else if (what === "push") this.ydoc.getArray(root).push([rest[0]]);
      else throw new Error(`no edit is called ${what}`);
    });
    return undefined;
  }

  #anEdit() {
    const below = (limit) => Math.floor(this.random() * limit);
    const { text, map, array } = this.roots;
    const length = [...this.#root("text").toString()].length;
    const choice = below(10);
    if (choice < 5) return ["insert", text, below(length + 1), LETTERS[below(LETTERS.length)].repeat(1 + below(3))];
    if (choice < 7 && length) {
      const position = below(length);
      return ["delete", text, position, 1 + below(Math.min(4, length - position))];
    }
    if (choice < 9) return ["set", map, `k${below(4)}`, below(1000)];
    return ["push", array, below(1000)];
  }

  #state() {
    const { replica } = this;
    return {
      versions: toWire(replica.versions).map(([origin, epoch, seq]) => [hex(origin), epoch, seq]), content: hex(replica.engine.digest()),
      value: { text: this.#root("text").toString(), map: this.#root("map").toJSON(), array: this.#root("array").toJSON() },
      joined: replica.joined, in_sync: replica.inSync, stuck: replica.stuck, held: replica.heldCount, own: replica.own.length,
      refused: replica.refused + this.#refused,
    };
  }
}

/** Return a seeded generator of numbers from 0 to 1 (mulberry32). */
function mulberry(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

let page = null;
for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  let answer;
  try {
    const command = JSON.parse(line);
    if (command.do === "start") {
      page = new Page(command);
      answer = { bus: [], ask: [], wake: null };
    } else if (page === null) throw new Error("the first command is start");
    else answer = page.command(command);
  } catch (error) {
    answer = { error: `${error.name}: ${error.message}` };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
