// Proof of the token in reply to a `prove`, without sending it; docs/wire.md has the bytes. Pure.
//
//     mac(token, ASKING, prove.nonce, own, stream)     // for the proof
//     mac(token, ASKED, prove.nonce, own, stream)      // which the welcome has to hold
//
// By @noble/hashes, as WebCrypto is not there on plain http.

import { hmac } from "@noble/hashes/hmac";
import { sha256 } from "@noble/hashes/sha2";
import { streamParts } from "./versions.js";

export const NONCE = 32; // bytes
const text = (value) => new TextEncoder().encode(value);
export const ASKING = text("asking\0");
export const ASKED = text("asked\0");

function joined(...parts) {
  const all = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

export function mac(token, role, asked, own, stream) {
  const [origin, epoch] = streamParts(stream);
  const number = new Uint8Array(8);
  new DataView(number.buffer).setBigUint64(0, BigInt(epoch));
  return hmac(sha256, sha256(joined(text("nngkit documents 1\0"), text(token))), joined(role, asked, own, origin, number));
}
