// Content digest: 16 bytes, equal for equal content, in Python and here. Pure.
//
// It is the first half of the SHA-256 of this encoding of the document, roots sorted by name, keys by key (as UTF-8):
//
//     root    = str(name) value, for each root with content
//     value   = "n" | "t" | "f" | "d" double | "i" int64 | "s" str | "b" bytes | "a" count value* | "m" count (str(key) value)*
//     str(x)  = length as u32, UTF-8           numbers are big-endian
//
// A number is a double; "i" is a whole number that no double can represent. A root is a text if it holds any text, else an
// array if it holds items, else a map if it holds keys; an empty one is skipped. The type that a root was opened as does not
// matter: it may be open here and not elsewhere. So this reads Yjs's items, not the types' own methods.

import { sha256 } from "@noble/hashes/sha2";
import * as Y from "yjs";

const SIZE = 16;
const UTF8 = new TextEncoder();

class Writer {
  #buffer = new Uint8Array(4096);
  #used = 0;
  #room(more) {
    if (this.#used + more <= this.#buffer.length) return;
    const larger = new Uint8Array(Math.max(2 * this.#buffer.length, this.#used + more));
    larger.set(this.#buffer);
    this.#buffer = larger;
  }
  bytes(bytes) {
    this.#room(bytes.length);
    this.#buffer.set(bytes, this.#used);
    this.#used += bytes.length;
  }
  letter(letter) {
    this.#room(1);
    this.#buffer[this.#used++] = letter.charCodeAt(0);
  }
  view(size) {
    this.#room(size);
    this.#used += size;
    return new DataView(this.#buffer.buffer, this.#used - size, size);
  }
  count(number) { this.view(4).setUint32(0, number); }
  sized(bytes) { this.count(bytes.length); this.bytes(bytes); }
  text(text) { this.sized(UTF8.encode(text)); }
  get written() { return this.#buffer.subarray(0, this.#used); }
}

/** 16 bytes; null if the document holds types that only Yjs knows (XML, documents inside documents). */
export function contentDigest(ydoc) {
  const bytes = contentBytes(ydoc);
  return bytes && sha256(bytes).slice(0, SIZE);
}

/** The bytes that are hashed: for tests, and for other implementations. */
export function contentBytes(ydoc) {
  const writer = new Writer();
  const roots = [...ydoc.share.keys()].map((name) => [UTF8.encode(name), ydoc.share.get(name)]);
  try {
    for (const [name, type] of roots.sort(byBytes)) {
      const kind = rootKind(type);
      if (kind === null) continue;
      writer.sized(name);
      writeType(writer, type, kind);
    }
  } catch (error) {
    if (error instanceof Foreign) return null;
    throw error;
  }
  return writer.written;
}

class Foreign extends Error {}

function byBytes([a], [b]) {
  for (let i = 0; i < Math.min(a.length, b.length); i++) if (a[i] !== b[i]) return a[i] - b[i];
  return a.length - b.length;
}

function* live(type) {
  for (let item = type._start; item !== null; item = item.right) if (!item.deleted && item.countable) yield item;
}

function liveEntries(type) {
  return [...type._map].filter(([, item]) => !item.deleted);
}

function rootKind(type) {
  let items = false;
  for (const item of live(type)) {
    if (item.content instanceof Y.ContentString) return "s";
    items = true;
  }
  if (items) return "a";
  return liveEntries(type).length ? "m" : null;
}

function nestedKind(type) {
  if (type instanceof Y.XmlText || type instanceof Y.XmlHook) throw new Foreign(); // subclasses of Y.Text and Y.Map
  if (type instanceof Y.Text) return "s";
  if (type instanceof Y.Array) return "a";
  if (type instanceof Y.Map) return "m";
  throw new Foreign();
}

function writeType(writer, type, kind) {
  writer.letter(kind);
  if (kind === "s") {
    let text = "";
    for (const item of live(type)) if (item.content instanceof Y.ContentString) text += item.content.str;
    writer.text(text);
  } else if (kind === "a") {
    const items = [...live(type)];
    writer.count(items.reduce((sum, item) => sum + item.length, 0));
    for (const item of items) writeContent(writer, item.content);
  } else {
    const entries = liveEntries(type).map(([key, item]) => [UTF8.encode(key), item]);
    writer.count(entries.length);
    for (const [key, item] of entries.sort(byBytes)) {
      writer.sized(key);
      const values = item.content instanceof Y.ContentType ? [item.content.type] : item.content.getContent();
      writeValue(writer, values[values.length - 1]);
    }
  }
}

function writeContent(writer, content) {
  if (content instanceof Y.ContentType) writeValue(writer, content.type);
  else for (const value of content.getContent()) writeValue(writer, value);
}

function writeValue(writer, value) {
  if (value === null || value === undefined) writer.letter("n");
  else if (value === true) writer.letter("t");
  else if (value === false) writer.letter("f");
  else if (typeof value === "number") writeDouble(writer, value);
  else if (typeof value === "bigint") {
    if (BigInt(Number(value)) === value) return writeDouble(writer, Number(value));
    writer.letter("i");
    writer.view(8).setBigInt64(0, value);
  } else if (typeof value === "string") {
    writer.letter("s");
    writer.text(value);
  } else if (value instanceof Uint8Array) {
    writer.letter("b");
    writer.sized(value);
  } else if (value instanceof Y.AbstractType) writeType(writer, value, nestedKind(value));
  else if (value instanceof Y.Doc) throw new Foreign();
  else if (Array.isArray(value)) {
    writer.letter("a");
    writer.count(value.length);
    for (const item of value) writeValue(writer, item);
  } else {
    const entries = Object.entries(value).map(([key, item]) => [UTF8.encode(key), item]);
    writer.letter("m");
    writer.count(entries.length);
    for (const [key, item] of entries.sort(byBytes)) {
      writer.sized(key);
      writeValue(writer, item);
    }
  }
}

function writeDouble(writer, value) {
  writer.letter("d");
  const view = writer.view(8);
  if (Number.isNaN(value)) view.setBigUint64(0, 0x7ff8000000000000n); // the canonical NaN
  else view.setFloat64(0, value === 0 ? 0 : value); // -0 is 0
}
