// Transfer of a large update in verified chunks, from its manifest to its bytes. Pure.
//
//     const transfer = new Transfer(manifest);
//     while (!transfer.done) transfer.take((await ask({ kind: "pull", ...transfer.next() })).chunks);
//     transfer.body();

import { sha256 } from "@noble/hashes/sha2";
import { BadMessage, MOST_CHUNKS } from "./wire.js";

export class Transfer {
  #manifest;
  #chunks = new Map(); // by index; verified. Grows with the received chunks, not with the manifest's claims.

  constructor(manifest) { this.#manifest = manifest; }

  get id() { return this.#manifest.transfer; }
  get taken() { return this.#chunks.size; }
  get done() { return this.taken === this.#manifest.chunks.length; }

  /** Return the chunks to request next. */
  next() {
    const indexes = [];
    for (let i = 0; i < this.#manifest.chunks.length && indexes.length < MOST_CHUNKS; i++) if (!this.#chunks.has(i)) indexes.push(i);
    return { transfer: this.#manifest.transfer, indexes };
  }

  /** Add chunks. Throws BadMessage for a chunk that does not match the manifest; those before it are kept. */
  take(chunks) {
    const { size, chunkSize, chunks: hashes } = this.#manifest;
    for (const { index, data } of chunks) {
      if (index >= hashes.length) throw new BadMessage("chunk", `number ${index} of ${hashes.length}`);
      const due = Math.min(chunkSize, size - index * chunkSize);
      if (data.length !== due) throw new BadMessage("chunk", `${data.length} bytes instead of ${due}`);
      if (!same(sha256(data), hashes[index])) throw new BadMessage("chunk", `number ${index} has another hash`);
      this.#chunks.set(index, data);
    }
  }

  /** Return all bytes. Throws BadMessage if the hash of the whole differs. */
  body() {
    const { size, chunkSize, sha256: hash } = this.#manifest;
    const body = new Uint8Array(size);
    for (const [index, data] of this.#chunks) body.set(data, index * chunkSize);
    if (!same(sha256(body), hash)) throw new BadMessage("transfer", "the whole has another hash");
    return body;
  }
}

export function same(a, b) {
  return a.length === b.length && a.every((byte, i) => byte === b[i]);
}
