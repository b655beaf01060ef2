// The counterpart of a replica, for its tests: a peer that keeps one document, drops edits that arrive too early, and
// answers requests. It repairs nothing: a page that lacks edits has to request them, or to give its own.

import { createHash } from "node:crypto";
import { decode, encode } from "cborg";
import * as Y from "yjs";
import { Engine } from "../engine.js";
import { covers, raise, streamName, streamParts, toWire, versionsDigest } from "../versions.js";
import { decodeBus } from "../wire.js";

const sha256 = (bytes) => Uint8Array.from(createHash("sha256").update(bytes).digest());
export const CHUNK = 64; // bytes: small, so that small documents travel in chunks

export class Home {
  versions = new Map();
  log = new Map(); // stream -> [edit, ...]
  relayed = []; // update messages for the other pages
  transfers = new Map();
  manifestFrom = 200; // bytes of a diff that is no longer sent as it is

  constructor(number, doc = "d") {
    this.doc = doc;
    this.origin = Uint8Array.of(255, 0, 0, 0, 0, 0, 0, number);
    this.stream = streamName(this.origin, 1);
    this.ydoc = new Y.Doc();
    this.engine = new Engine(this.ydoc);
    this.engine.onEdit = (payload) => {
      const seq = (this.versions.get(this.stream) ?? 0) + 1;
      const deps = new Map([...this.versions].filter(([stream]) => stream !== this.stream));
      this.#add(this.stream, seq, { payload, deps });
    };
  }

  #add(stream, seq, edit) {
    this.versions.set(stream, seq);
    if (!this.log.has(stream)) this.log.set(stream, new Map());
    this.log.get(stream).set(seq, edit);
    this.relayed.push(this.#message(stream, seq, [edit]));
  }

  #message(stream, first, edits) {
    return [0, streamParts(stream), this.doc, first, edits.map(({ payload, deps }) => [payload, toWire(deps)])];
  }

  /** The messages for the BUS since the last call. */
  sent() {
    return this.relayed.splice(0).map((message) => encode(message));
  }

  receive(bytes) {
    const message = decodeBus(bytes);
    if (message.kind !== "update") return;
    message.edits.forEach((edit, i) => {
      const seq = message.first + i;
      if (seq !== (this.versions.get(message.stream) ?? 0) + 1 || !covers(this.versions, edit.deps)) return;
      this.engine.apply(edit.payload);
      this.#add(message.stream, seq, edit);
    });
  }

  heartbeat() {
    const heads = toWire(new Map([...this.versions].slice(-32)));
    return encode([1, streamParts(this.stream), new Map([["v", 1]]), [[this.doc, versionsDigest(this.versions), this.engine.digest(), heads]]]);
  }

  answer(bytes) {
    const [kind, , , ...rest] = decode(bytes);
    const me = streamParts(this.stream);
    if (kind === 5) {
      const messages = [];
      let lacking = false;
      for (const [origin, epoch, first, last] of rest[1]) {
        const stream = streamName(origin, epoch);
        for (let seq = first; seq <= last; seq++) {
          const edit = this.log.get(stream)?.get(seq);
          if (edit) messages.push(this.#message(stream, seq, [edit]));
          else lacking = true;
        }
      }
      return encode([5, me, this.doc, messages, lacking]);
    }
    if (kind === 6) {
      const update = this.engine.changesSince(rest[1]);
      const body = update.length > this.manifestFrom ? this.#manifest(update) : update;
      return encode([7, me, this.doc, body, toWire(this.versions)]);
    }
    if (kind === 8) {
      const chunks = this.transfers.get(rest[0].join()) ?? [];
      return encode([9, me, rest[0], rest[1].filter((i) => i < chunks.length).map((i) => [i, chunks[i]])]);
    }
    if (kind === 10) {
      this.engine.apply(rest[1]);
      raise(this.versions, rest[2].map(([origin, epoch, seq]) => [streamName(origin, epoch), seq]));
      return encode([11, me, this.doc, toWire(this.versions)]);
    }
    throw new Error(`asked ${kind}`);
  }

  #manifest(update) {
    const chunks = [];
    for (let i = 0; i < update.length; i += CHUNK) chunks.push(update.slice(i, i + CHUNK));
    const id = sha256(update).slice(0, 16);
    this.transfers.set(id.join(), chunks);
    return [id, update.length, CHUNK, sha256(update), chunks.map(sha256)];
  }
}
