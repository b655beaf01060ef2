// Messages of the documents protocol and their encoding, for a page; docs/wire.md has the CDDL. Pure.
//
// A message is an object with a `kind`. Incoming bytes are hostile until `decodeBus` or `decodeReply` has accepted them:
// both throw BadMessage for anything that is not as described. Further items of a list, and unknown keys, are a later
// version's, and are ignored.
//
//     decodeBus(encodeUpdate(me, "minutes", 1, [{ payload, deps }]))
//     // { kind: "update", stream: me, doc: "minutes", first: 1, edits: [{ payload, deps }] }
//
// A page receives no requests, so it encodes requests and decodes replies only.

import { Tokenizer, decode, encode } from "cborg";
import { MOST_STREAMS, streamName, streamParts, toWire } from "./versions.js";

export const VERSION = 1;
export const BUS_LIMIT = 256 * 1024; // bytes of a BUS message; a larger edit travels by request only
export const REQUEST_LIMIT = 4 * 1024 * 1024;
export const REPLY_LIMIT = 4 * 1024 * 1024;
export const AWARENESS_LIMIT = 16 * 1024;
export const MOST_EDITS = 256; // in one update message
export const MOST_RANGES = 64; // in one nack
export const MOST_HEADS = 32; // in one document's part of a heartbeat
export const MOST_CHUNKS = 8; // in one pull
const MOST_DOCUMENTS = 64; // in a heartbeat
const MOST_OFFERED = 1024; // documents in a welcome
const MOST_ADDRESSES = 8;
const MOST_TRANSFER = 1024 * 1024 * 1024; // bytes that a manifest may announce
const KIND = {
  update: 0, heartbeat: 1, awareness: 2, bye: 3, hello: 4, nack: 5, want: 6, diff: 7,
  pull: 8, chunks: 9, give: 10, given: 11, have: 12, has: 13, prove: 14, refused: 15, proof: 16,
};
const READING = {
  strict: true, // shortest numbers
  allowIndefinite: false,
  allowUndefined: false,
  allowBigInt: false, // numbers that JavaScript cannot represent exactly are refused
  rejectDuplicateMapKeys: true,
  useMaps: true, // a key may be "__proto__"
  retainStringBytes: true, // for the check below
};
const STRICT_UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

export class BadMessage extends Error {
  constructor(what, why, code = "bad") {
    super(`bad ${what}: ${why}`);
    this.name = "BadMessage";
    this.code = code; // as in the peer's refusals: "bad", or "version" for a newer version
  }
}

/** cborg replaces invalid UTF-8 by U+FFFD; this refuses the message. */
class Tokens extends Tokenizer {
  next() {
    const token = super.next();
    if (token.byteValue && typeof token.value === "string") STRICT_UTF8.decode(token.byteValue);
    return token;
  }
}

const read = (bytes) => decode(bytes, { ...READING, tokenizer: new Tokens(bytes, READING) });

// ---- reading --------------------------------------------------------------------------------------------------------

function reader(what) {
  const refuse = (why, code) => { throw new BadMessage(what, why, code); };
  const check = (holds, why, code) => { if (!holds) refuse(why, code); };
  const is = {
    array(value, low, high, name) {
      check(Array.isArray(value) && value.length >= low && value.length <= high, `${name} is no list of ${low} to ${high}`);
      return value;
    },
    /** A list with `least` items; further ones are a later version's, and are ignored. */
    row(value, least, name) {
      check(Array.isArray(value) && value.length >= least, `${name} is no list of ${least}`);
      return value;
    },
    bytes(value, name, size = null) {
      check(value instanceof Uint8Array && (size === null || value.length === size), `${name} is no ${size ?? "byte"} bytes`);
      return value;
    },
    bytesOrNull: (value, name, size = null) => (value === null ? null : is.bytes(value, name, size)),
    text(value, name, most = 1024) {
      check(typeof value === "string" && new TextEncoder().encode(value).length <= most, `${name} is no text of at most ${most} bytes`);
      return value;
    },
    whole(value, name, low = 0, high = Number.MAX_SAFE_INTEGER) {
      check(Number.isSafeInteger(value) && value >= low && value <= high, `${name} is no whole number from ${low} to ${high}`);
      return value;
    },
    flag(value, name) {
      check(typeof value === "boolean", `${name} is neither true nor false`);
      return value;
    },
    map(value, name) {
      check(value instanceof Map && [...value.keys()].every((key) => typeof key === "string"), `${name} is no map`);
      return value;
    },
    doc(value) {
      check(is.text(value, "document", 200) !== "", "a document has no name");
      return value;
    },
    stream(value) {
      is.array(value, 2, 2, "stream");
      return streamName(is.bytes(value[0], "origin", 8), is.whole(value[1], "epoch"));
    },
    versions(value, most = MOST_STREAMS) {
      const versions = new Map();
      for (const row of is.array(value, 0, most, "versions")) {
        is.array(row, 3, 3, "version");
        const stream = is.stream(row.slice(0, 2));
        check(!versions.has(stream), "a stream comes twice");
        versions.set(stream, is.whole(row[2], "number", 1));
      }
      return versions;
    },
    version(map) {
      const theirs = is.whole(map.get("v"), "v", 1);
      check(theirs <= VERSION, `version ${theirs}, newer than the version ${VERSION} spoken here`, "version");
    },
    optional: (map, key, read, otherwise) => (map.has(key) ? read(map.get(key)) : otherwise),
    update(value) {
      is.row(value, 5, "update");
      check(value[0] === KIND.update, "not an update");
      const first = is.whole(value[3], "number", 1);
      const edits = is.array(value[4], 1, MOST_EDITS, "edits").map((edit) => {
        is.row(edit, 2, "edit");
        return { payload: is.bytes(edit[0], "payload"), deps: is.versions(edit[1]) };
      });
      is.whole(first + edits.length - 1, "number of the last edit", 1);
      return { kind: "update", stream: is.stream(value[1]), doc: is.doc(value[2]), first, edits };
    },
  };
  return { is, check, refuse };
}

function open(bytes, what, limit) {
  if (bytes.length > limit) throw new BadMessage(what, `${bytes.length} bytes, over the limit of ${limit}`);
  let value;
  try {
    value = read(bytes);
  } catch (error) { // also a RangeError: nested deeper than the stack
    throw new BadMessage(what, error.message);
  }
  if (!Array.isArray(value) || value.length === 0) throw new BadMessage(what, "not a list that begins with its kind");
  return value;
}

/** Decode a message from the BUS. */
export function decodeBus(bytes) {
  const value = open(bytes, "bus message", BUS_LIMIT);
  const { is, refuse } = reader("bus message");
  const sized = (least) => is.row(value, least, "it");
  switch (value[0]) {
    case KIND.update:
      return is.update(value);
    case KIND.heartbeat: {
      sized(4);
      const about = is.map(value[2], "about");
      is.version(about);
      const refused = is.optional(about, "refused", (rows) => is.array(rows, 0, MOST_DOCUMENTS, "refused edits").map((row) => {
        is.row(row, 5, "refused edit");
        return { doc: is.doc(row[0]), stream: is.stream(row.slice(1, 3)), seq: is.whole(row[3], "number", 1), why: is.text(row[4], "reason") };
      }), []);
      const docs = is.array(value[3], 0, MOST_DOCUMENTS, "documents").map((row) => {
        is.row(row, 4, "document's heartbeat");
        return {
          doc: is.doc(row[0]), versionsDigest: is.bytesOrNull(row[1], "digest of versions", 8),
          contentDigest: is.bytesOrNull(row[2], "digest of content", 16), heads: is.versions(row[3], MOST_HEADS),
          refused: refused.filter(({ doc }) => doc === row[0]),
        };
      });
      return {
        kind: "heartbeat", stream: is.stream(value[1]), name: is.optional(about, "name", (name) => is.text(name, "name"), null), docs,
        clients: is.optional(about, "client", (rows) => new Map(is.array(rows, 0, MOST_DOCUMENTS, "clients").map((row) => {
          is.row(row, 2, "client");
          return [is.doc(row[0]), is.whole(row[1], "client")];
        })), new Map()),
      };
    }
    case KIND.awareness:
      sized(5);
      return {
        kind: "awareness", stream: is.stream(value[1]), doc: is.doc(value[2]), clock: is.whole(value[3], "clock"),
        state: value[4] === null ? null : readState(is.bytes(value[4], "state")),
      };
    case KIND.bye:
      sized(2);
      return { kind: "bye", stream: is.stream(value[1]) };
    default:
      return refuse("of no kind that is known");
  }
}

/** Decode the map inside an awareness message into an object: { client, user, cursor, ... }. */
function readState(bytes) {
  const { is, refuse } = reader("awareness");
  if (bytes.length > AWARENESS_LIMIT) refuse(`${bytes.length} bytes, over the limit of ${AWARENESS_LIMIT}`);
  let value;
  try {
    value = read(bytes);
  } catch (error) {
    return refuse(error.message);
  }
  is.whole(is.map(value, "state").get("client"), "client");
  return plain(value);
}

function plain(value) {
  if (Array.isArray(value)) return value.map(plain);
  if (!(value instanceof Map)) return value;
  const object = Object.create(null);
  for (const [key, item] of value) object[key] = plain(item);
  return object;
}

/** Decode the reply to a request. */
export function decodeReply(bytes) {
  const value = open(bytes, "reply", REPLY_LIMIT);
  const { is, check, refuse } = reader("reply");
  const sized = (least) => is.row(value, least, "it");
  const common = () => ({ stream: is.stream(value[1]) });
  switch (value[0]) {
    case KIND.hello: {
      sized(3);
      const about = is.map(value[2], "welcome");
      is.version(about);
      return {
        kind: "welcome", ...common(), name: is.optional(about, "name", (name) => is.text(name, "name"), null),
        bus: is.array(about.get("bus"), 0, MOST_ADDRESSES, "bus").map((address) => is.text(address, "address")),
        documents: is.array(about.get("documents"), 0, MOST_OFFERED, "documents").map(is.doc),
        maxUpdate: is.whole(about.get("max_update"), "max_update", 1),
        mac: is.optional(about, "mac", (mac) => is.bytes(mac, "mac", 32), null),
      };
    }
    case KIND.nack:
      sized(5);
      return {
        kind: "updates", ...common(), doc: is.doc(value[2]), rest: is.flag(value[4], "rest"),
        updates: is.array(value[3], 0, MOST_RANGES * MOST_EDITS, "updates").map(is.update),
      };
    case KIND.diff: {
      sized(5);
      const body = value[3] instanceof Uint8Array ? value[3] : readManifest(value[3], is, check);
      return { kind: "diff", ...common(), doc: is.doc(value[2]), body, versions: is.versions(value[4]) };
    }
    case KIND.chunks: {
      sized(4);
      const chunks = is.array(value[3], 0, MOST_CHUNKS, "chunks").map((row) => {
        is.row(row, 2, "chunk");
        return { index: is.whole(row[0], "index"), data: is.bytes(row[1], "chunk") };
      });
      return { kind: "chunks", ...common(), transfer: is.bytes(value[2], "transfer", 16), chunks };
    }
    case KIND.given:
      sized(4);
      return { kind: "given", ...common(), doc: is.doc(value[2]), versions: is.versions(value[3]) };
    case KIND.has:
      sized(4);
      return { kind: "has", ...common(), doc: is.doc(value[2]), yes: is.flag(value[3], "answer") };
    case KIND.prove:
      sized(3);
      return { kind: "prove", ...common(), nonce: is.bytes(value[2], "nonce", 32) };
    case KIND.refused:
      sized(4);
      return { kind: "refused", ...common(), code: is.text(value[2], "code"), why: is.text(value[3], "reason") };
    default:
      return refuse("of no kind that is known");
  }
}

function readManifest(value, is, check) {
  is.row(value, 5, "manifest");
  const size = is.whole(value[1], "size", 1, MOST_TRANSFER);
  const chunkSize = is.whole(value[2], "chunk size", 1, REPLY_LIMIT);
  const chunks = is.array(value[4], 1, MOST_TRANSFER, "hashes").map((hash) => is.bytes(hash, "hash", 32));
  check(chunks.length === Math.ceil(size / chunkSize), "more or fewer hashes than chunks");
  return { transfer: is.bytes(value[0], "transfer", 16), size, chunkSize, sha256: is.bytes(value[3], "hash", 32), chunks };
}

// ---- writing --------------------------------------------------------------------------------------------------------

const speaker = (kind, stream, ...rest) => encode([KIND[kind], streamParts(stream), ...rest]);

/** Encode `edits` [{ payload, deps }] of `stream`, numbered from `first`. */
export function encodeUpdate(stream, doc, first, edits) {
  return speaker("update", stream, doc, first, edits.map(({ payload, deps }) => [payload, toWire(deps)]));
}

/** Encode a heartbeat. `docs`: [{ doc, versionsDigest, contentDigest, heads }]; `clients`: Map from document to client id. */
export function encodeHeartbeat(stream, name, clients, docs) {
  const about = new Map([["v", VERSION], ["client", [...clients]]]);
  if (name) about.set("name", name);
  return speaker("heartbeat", stream, about, docs.map((row) => [row.doc, row.versionsDigest, row.contentDigest, toWire(row.heads)]));
}

/** Encode presence. `state`: an object with at least `client`, or null for a goodbye. */
export function encodeAwareness(stream, doc, clock, state) {
  const bytes = state === null ? null : encode(state);
  if (bytes && bytes.length > AWARENESS_LIMIT) throw new BadMessage("awareness", `over ${AWARENESS_LIMIT} bytes`);
  return speaker("awareness", stream, doc, clock, bytes);
}

export const encodeBye = (stream) => speaker("bye", stream);

/** Encode a request of a replica (replica.js), with its sender; null stands where earlier versions sent the token. */
export function encodeRequest(stream, request) {
  const write = (...rest) => speaker(request.kind, stream, null, ...rest);
  switch (request.kind) {
    case "hello":
      return write(introduction(request));
    case "proof": // nonce: of the prove; own: random; proof: a MAC (proof.js), or with a certificate a signature (guest.js)
      return speaker("proof", stream, request.nonce, request.own, request.proof, introduction(request), ...(request.certificate ? [request.certificate] : []));
    case "nack": // ranges: [{ stream, first, last }]
      return write(request.doc, request.ranges.map((range) => [...streamParts(range.stream), range.first, range.last]));
    case "want": // state: the engine's state vector, null if the document is empty
      return write(request.doc, request.state, toWire(request.versions));
    case "pull":
      return write(request.transfer, request.indexes);
    case "give":
      return write(request.doc, request.update, toWire(request.versions));
    case "have": // wait: seconds
      return write(request.doc, toWire(request.versions), request.durable, request.wait);
    default:
      throw new Error(`unknown request ${request.kind}`);
  }
}

function introduction({ name, documents, store }) {
  const about = new Map([["v", VERSION], ["documents", documents]]);
  if (name) about.set("name", name);
  if (store) about.set("store", store);
  return about;
}
