// Version vectors: how many edits of each stream a document has, as in nngkit/documents/versions.py. Pure.
//
// A stream is the edits of one peer from one start to the next. Here it is a text, "origin in hex @ epoch", so that it can
// be a key; versions are a Map from stream to the number of its last edit in the document:
//
//     const a = streamName(Uint8Array.of(1, 2, 3, 4, 5, 6, 7, 8), 1);     // "0102030405060708@1"
//     covers(new Map([[a, 3]]), new Map([[a, 2]]))                        // true

import { sha256 } from "@noble/hashes/sha2";
import { encode } from "cborg";

export const MOST_STREAMS = 1024; // cap on the streams of a vector, the newest are kept; also on the wire
const EPOCHS_KEPT = 16; // cap on the streams of one origin in a vector, the newest are kept
const ORIGIN = 8; // bytes

export function hex(bytes) {
  let text = "";
  for (const byte of bytes) text += byte.toString(16).padStart(2, "0");
  return text;
}

export function unhex(text) {
  if (!/^(?:[0-9a-f]{2})*$/.test(text)) throw new Error(`not hexadecimal: ${text.slice(0, 40)}`);
  return Uint8Array.from({ length: text.length / 2 }, (_, i) => parseInt(text.slice(2 * i, 2 * i + 2), 16));
}

export function streamName(origin, epoch) {
  if (!(origin instanceof Uint8Array) || origin.length !== ORIGIN) throw new Error("an origin is 8 bytes");
  if (!Number.isSafeInteger(epoch) || epoch < 0) throw new Error("an epoch is a whole number below 2^53");
  return `${hex(origin)}@${epoch}`;
}

/** Return [origin, epoch] of a stream, as on the wire. */
export function streamParts(stream) {
  const at = stream.indexOf("@");
  return [unhex(stream.slice(0, at)), Number(stream.slice(at + 1))];
}

/** Return true if `a` has all edits of `b`. */
export function covers(a, b) {
  for (const [stream, seq] of b) if ((a.get(stream) ?? 0) < seq) return false;
  return true;
}

/** Raise `a` to include all edits of `b`. */
export function raise(a, b) {
  for (const [stream, seq] of b) if ((a.get(stream) ?? 0) < seq) a.set(stream, seq);
}

const originOf = (stream) => stream.slice(0, 2 * ORIGIN);
const epochOf = (stream) => Number(stream.slice(2 * ORIGIN + 1));
const byAge = (a, b) => epochOf(a) - epochOf(b) || (originOf(a) < originOf(b) ? -1 : 1);

/** Return true if `prune` would drop `stream` again: its edits are in the content, but not in the vector. */
export function isOld(stream, versions) {
  if (versions.has(stream) || versions.size < EPOCHS_KEPT) return false;
  const streams = [...versions.keys()];
  const same = streams.filter((other) => originOf(other) === originOf(stream));
  if (same.length >= EPOCHS_KEPT && same.every((other) => epochOf(stream) < epochOf(other))) return true;
  return streams.length >= MOST_STREAMS && streams.every((other) => byAge(stream, other) < 0);
}

/** Drop the oldest streams beyond 16 of one origin and 1024 in all; all peers drop the same ones. */
export function prune(versions) {
  if (versions.size <= EPOCHS_KEPT) return;
  const counts = new Map();
  let kept = 0;
  for (const stream of [...versions.keys()].sort((a, b) => byAge(b, a))) {
    const count = (counts.get(originOf(stream)) ?? 0) + 1;
    counts.set(originOf(stream), count);
    if (kept >= MOST_STREAMS || count > EPOCHS_KEPT) versions.delete(stream);
    else kept += 1;
  }
}

/** Return [[origin, epoch, seq], ...], sorted by origin, then epoch. */
export function toWire(versions) {
  const rows = [];
  for (const [stream, seq] of versions) {
    rows.push({ origin: originOf(stream), epoch: epochOf(stream), seq });
  }
  // hexadecimal sorts like the bytes
  rows.sort((a, b) => (a.origin < b.origin ? -1 : a.origin > b.origin ? 1 : a.epoch - b.epoch));
  return rows.map(({ origin, epoch, seq }) => [unhex(origin), epoch, seq]);
}

/** Return the digest, 8 bytes, equal for equal versions. */
export function versionsDigest(versions) {
  return sha256(encode(toWire(versions))).slice(0, 8);
}
