// A guest's pass: read from a link, and used to prove a name; the page says so where browsers keep no keys.

import assert from "node:assert/strict";
import { webcrypto } from "node:crypto";
import { test } from "node:test";
import { decode, encode } from "cborg";
import { readPass, sign } from "../guest.js";
import { Peer } from "../peer.js";

const { subtle } = webcrypto;
const HEAD = [0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04];
const NONCE = new Uint8Array(32).fill(7);
const text = (bytes) => Buffer.from(bytes).toString("base64url");

async function pass(uri = "spiffe://farm/guest/ada") {
  const { privateKey, publicKey } = await subtle.generateKey({ name: "ECDSA", namedCurve: "P-256" }, true, ["sign", "verify"]);
  const { d, x, y } = await subtle.exportKey("jwk", privateKey);
  const point = [x, y].flatMap((part) => [...Buffer.from(part, "base64url")]);
  return { publicKey, link: `${text([1, 2, 3, ...HEAD, ...point, 0x86, uri.length, ...Buffer.from(uri), 9])}.${d}` };
}

test("a signature is of the number, the host and the path", async () => {
  const { publicKey, link } = await pass();
  const guest = readPass(link);
  const signature = await sign(subtle, guest, NONCE, "127.0.0.1:4712", "/repair");
  const message = Buffer.concat([Buffer.from("nngkit page 1\0"), NONCE, Buffer.from("127.0.0.1:4712/repair")]);
  assert.equal(signature.length, 64);
  assert.ok(await subtle.verify({ name: "ECDSA", hash: "SHA-256" }, publicKey, signature, message));
});

test("a pass has the name of its certificate", async () => {
  for (const [uri, name] of [["spiffe://farm/guest/ada", "guest.ada"], ["spiffe://farm/ada", "ada"], ["https://farm/guest/ada", ""]]) {
    assert.equal(readPass((await pass(uri)).link).name, name);
  }
});

test("what is no pass is none", async () => {
  const { link } = await pass();
  const [certificate, key] = link.split(".");
  for (const wrong of [null, "", ".", certificate, `${certificate}.`, `${certificate}.${key}.${key}`, `${certificate}.AAAA`, `AAAA.${key}`, `%.${key}`, `${certificate.slice(0, 60)}.${key}`]) {
    assert.equal(readPass(wrong), null);
  }
});

/** Join a peer that asks for a proof; return what the page says, and the proof that it sends. */
async function joining(options) {
  let proof = null;
  class Socket {
    readyState = 1;
    constructor() { setTimeout(() => this.onopen()); }
    send(frame) {
      const request = decode(frame.slice(4));
      if (request[0] === 16) proof = request;
      const reply = request[0] === 4 ? [14, [new Uint8Array(8), 1], NONCE] : [15, [new Uint8Array(8), 1], "expired", "expired: over"];
      setTimeout(() => this.onmessage({ data: Uint8Array.from([...frame.slice(0, 4), ...encode(reply)]).buffer }));
    }
    close() {}
  }
  const peer = new Peer({ addresses: ["ws://*:4712/repair"], host: "notes", WebSocket: Socket, random: Math.random, ...options });
  const said = await new Promise((resolve) => {
    peer.onState = (state, why, code) => state === "refused" && resolve({ why, code });
    peer.start();
  });
  peer.stop();
  return { ...said, proof };
}

test("a guest proves the name with the certificate, and hears the reason of a refusal", async () => {
  const { link } = await pass();
  const guest = readPass(link);
  const { code, proof } = await joining({ guest, subtle });
  assert.equal(code, "expired");
  assert.deepEqual([proof[2], proof[4].length, proof[6]].map((part) => (part.length ? part.length : part)), [32, 64, guest.certificate.length]);
});

test("on plain http, where browsers have no WebCrypto, nothing is sent and the page says why", async () => {
  const { link } = await pass();
  const { code, proof } = await joining({ guest: readPass(link), subtle: null });
  assert.deepEqual([code, proof], ["insecure", null]);
});
