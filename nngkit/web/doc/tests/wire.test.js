// The encoding of messages: encoders follow the CDDL, and decoders accept nothing else.

import assert from "node:assert/strict";
import { test } from "node:test";
import { encode } from "cborg";
import { ASKED, ASKING, mac } from "../proof.js";
import { hex, streamName, unhex, versionsDigest } from "../versions.js";
import * as wire from "../wire.js";

const ORIGIN = Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8);
const ME = streamName(ORIGIN, 9);
const OTHER = streamName(new Uint8Array(8), 1);
const bytes = (text) => unhex(text.replaceAll(" ", ""));
const STREAM = "82 48 0102030405060708 09";

test("an update is encoded as in the CDDL, and decoded again", () => {
  const edits = [{ payload: Uint8Array.of(0, 0), deps: new Map([[OTHER, 300]]) }, { payload: Uint8Array.of(7), deps: new Map() }];
  const written = wire.encodeUpdate(ME, "minutes", 2, edits);
  assert.deepEqual(written, bytes(`85 00 ${STREAM} 67 6d696e75746573 02 82 82 42 0000 81 83 48 0000000000000000 01 19012c 82 41 07 80`));
  assert.deepEqual(wire.decodeBus(written), { kind: "update", stream: ME, doc: "minutes", first: 2, edits });
});

test("a heartbeat carries no address, as a page has no REP socket", () => {
  const row = { doc: "d", versionsDigest: null, contentDigest: null, heads: new Map([[ME, 1]]) };
  const written = wire.encodeHeartbeat(ME, "Ann", new Map([["d", 4]]), [row]);
  assert.deepEqual(written, bytes(`84 01 ${STREAM} a3 61 76 01 64 6e616d65 63 416e6e 66 636c69656e74 81 82 61 64 04 81 84 61 64 f6 f6 81 83 48 0102030405060708 09 01`));
  const read = wire.decodeBus(written);
  assert.deepEqual([read.kind, read.name, read.docs[0].heads], ["heartbeat", "Ann", new Map([[ME, 1]])]);
});

test("a heartbeat names refused edits, each with its document", () => {
  const row = (doc) => `84 61 ${doc} f6 f6 80`;
  const refused = `85 61 64 48 0102030405060708 09 07 63 584d4c`; // of document d
  const heartbeat = (rows) => wire.decodeBus(bytes(`84 01 ${STREAM} a2 61 76 01 67 72656675736564 ${rows} 82 ${row("64")} ${row("65")}`));
  const read = heartbeat(`81 ${refused}`);
  assert.deepEqual(read.docs.map((one) => one.refused), [[{ doc: "d", stream: ME, seq: 7, why: "XML" }], []]);
  assert.throws(() => heartbeat(`81 84 61 64 48 0102030405060708 09 07`), wire.BadMessage);
});

test("awareness holds its state as a map inside bytes", () => {
  const state = { client: 4, user: { name: "Ann" }, cursor: null };
  const read = wire.decodeBus(wire.encodeAwareness(ME, "d", 3, state));
  assert.deepEqual([read.clock, read.state.client, { ...read.state.user }], [3, 4, { name: "Ann" }]);
  assert.equal(wire.decodeBus(wire.encodeAwareness(ME, "d", 4, null)).state, null);
  assert.throws(() => wire.encodeAwareness(ME, "d", 3, { client: 4, user: "x".repeat(17000) }), wire.BadMessage);
});

test("requests begin with their sender, and null in place of the token of earlier versions", () => {
  const written = (request) => wire.encodeRequest(ME, request);
  assert.deepEqual(written({ kind: "hello", name: null, documents: ["d"] }), bytes(`84 04 ${STREAM} f6 a2 61 76 01 69 646f63756d656e7473 81 61 64`));
  assert.deepEqual(written({ kind: "hello", name: null, documents: [], store: ORIGIN }), bytes(`84 04 ${STREAM} f6 a3 61 76 01 65 73746f7265 48 0102030405060708 69 646f63756d656e7473 80`));
  const half = "58 20 " + "07".repeat(32);
  const number = new Uint8Array(32).fill(7);
  assert.deepEqual(Uint8Array.from(written({ kind: "proof", nonce: number, own: number, proof: number, name: null, documents: [] })), bytes(`86 10 ${STREAM} ${half} ${half} ${half} a2 61 76 01 69 646f63756d656e7473 80`));
  assert.deepEqual(written({ kind: "nack", doc: "d", ranges: [{ stream: ME, first: 2, last: 3 }] }), bytes(`85 05 ${STREAM} f6 61 64 81 84 48 0102030405060708 09 02 03`));
  assert.deepEqual(written({ kind: "want", doc: "d", state: null, versions: new Map() }), bytes(`86 06 ${STREAM} f6 61 64 f6 80`));
  assert.deepEqual(written({ kind: "give", doc: "d", update: Uint8Array.of(5), versions: new Map([[ME, 1]]) }), bytes(`86 0a ${STREAM} f6 61 64 41 05 81 83 48 0102030405060708 09 01`));
  assert.deepEqual(written({ kind: "have", doc: "d", versions: new Map(), durable: true, wait: 0.5 }), bytes(`87 0c ${STREAM} f6 61 64 80 f5 f9 3800`));
});

test("a proof is the MAC that the other implementation makes", () => {
  const [asked, own] = [new Uint8Array(32).fill(1), new Uint8Array(32).fill(2)];
  assert.equal(hex(mac("a key", ASKING, asked, own, ME)), "ab41b038ab770734a8dfcc54534c7052f7729c2679ddfebf0d8564009db66c80");
  assert.notEqual(hex(mac("a key", ASKED, asked, own, ME)), hex(mac("a key", ASKING, asked, own, ME)));
});

test("versions are encoded sorted by origin and epoch, in any order of insertion", () => {
  const [a, b, c] = [streamName(new Uint8Array(8), 10), streamName(new Uint8Array(8), 9), ME];
  const shuffled = [new Map([[a, 1], [b, 2], [c, 3]]), new Map([[c, 3], [b, 2], [a, 1]])];
  assert.deepEqual(versionsDigest(shuffled[0]), versionsDigest(shuffled[1]));
  const written = wire.encodeRequest(ME, { kind: "want", doc: "d", state: null, versions: shuffled[1] });
  assert.deepEqual(written.slice(-37), bytes("83 83 48 0000000000000000 09 02 83 48 0000000000000000 0a 01 83 48 0102030405060708 09 03"));
});

const REPLIES = {
  welcome: [4, [ORIGIN, 9], { v: 1, bus: ["ws://*:1/x"], documents: ["d"], max_update: 5 }],
  updates: [5, [ORIGIN, 9], "d", [[0, [ORIGIN, 9], "d", 1, [[ORIGIN, []]]]], false],
  diff: [7, [ORIGIN, 9], "d", ORIGIN, [[ORIGIN, 9, 1]]],
  chunks: [9, [ORIGIN, 9], new Uint8Array(16), [[0, ORIGIN]]],
  given: [11, [ORIGIN, 9], "d", []],
  has: [13, [ORIGIN, 9], "d", true],
  prove: [14, [ORIGIN, 9], new Uint8Array(32)],
  refused: [15, [ORIGIN, 9], "token", "no"],
};
for (const [kind, value] of Object.entries(REPLIES)) {
  test(`a reply of kind ${kind} is read, also with further items, and refused with an item less or of another type`, () => {
    assert.equal(wire.decodeReply(encode(value)).kind, kind);
    assert.deepEqual(wire.decodeReply(encode([...value, 1])), wire.decodeReply(encode(value)));
    assert.throws(() => wire.decodeReply(encode(value.slice(0, -1))), wire.BadMessage);
    for (let i = 0; i < value.length; i++) {
      const changed = [...value];
      changed[i] = -1.5;
      assert.throws(() => wire.decodeReply(encode(changed)), wire.BadMessage, `item ${i}`);
    }
  });
}

const HASH = new Uint8Array(32);
const manifest = (...items) => encode([7, [ORIGIN, 9], "d", items, []]);
const HOSTILE = {
  "no CBOR": "ff",
  "bytes behind the value": `82 03 ${STREAM} 00`,
  "an indefinite list": `9f 03 ${STREAM} ff`,
  "a tag": `82 03 c0 ${STREAM}`,
  "undefined": "82 03 f7",
  "a number longer than it has to be": "82 18 03 82 48 0102030405060708 09",
  "an epoch that JavaScript cannot count": "82 03 82 48 0102030405060708 1b 0020000000000000",
  "an origin of 7 bytes": "82 03 82 47 01020304050607 09",
  "an unknown kind": `82 0e ${STREAM}`,
  "text that is no UTF-8": `85 00 ${STREAM} 61 ff 01 81 82 40 80`,
  "an update without edits": `85 00 ${STREAM} 61 64 01 80`,
  "an edit numbered 0": `85 00 ${STREAM} 61 64 00 81 82 40 80`,
  "a document without a name": `85 00 ${STREAM} 60 01 81 82 40 80`,
  "a map with a key twice": `84 01 ${STREAM} a2 61 76 01 61 76 01 80`,
  "a newer version": `84 01 ${STREAM} a1 61 76 02 80`,
  "a stream twice in versions": `85 00 ${STREAM} 61 64 01 81 82 40 82 83 48 0102030405060708 01 01 83 48 0102030405060708 01 02`,
};
for (const [what, message] of Object.entries(HOSTILE)) {
  test(`the BUS: ${what} is refused`, () => assert.throws(() => wire.decodeBus(bytes(message)), wire.BadMessage));
}

test("messages nested deeper than the stack, or too long, are refused", () => {
  assert.throws(() => wire.decodeBus(new Uint8Array(200000).fill(0x81)), wire.BadMessage);
  assert.throws(() => wire.decodeBus(new Uint8Array(wire.BUS_LIMIT + 1)), /over the limit/);
});

test("a manifest with too few hashes, or of a terabyte, is refused", () => {
  assert.equal(wire.decodeReply(manifest(new Uint8Array(16), 10, 5, HASH, [HASH, HASH])).body.size, 10);
  assert.throws(() => wire.decodeReply(manifest(new Uint8Array(16), 11, 5, HASH, [HASH, HASH])), wire.BadMessage);
  assert.throws(() => wire.decodeReply(manifest(new Uint8Array(16), 2 ** 40, 2 ** 40, HASH, [HASH])), wire.BadMessage);
});

test("a key called __proto__ is an ordinary key", () => {
  const state = encode(new Map([["client", 1], ["__proto__", new Map([["name", "x"]])]]));
  const read = wire.decodeBus(encode([2, [ORIGIN, 9], "d", 1, state]));
  assert.equal(read.state.name, undefined);
  assert.equal({}.name, undefined);
});
