// The content digest: the bytes that are hashed, and their independence of anything but the content.
//
// NNGKIT_DIGESTS names a file of documents made by Python: [{ why, update, digest }], both in hexadecimal.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import * as Y from "yjs";
import { contentBytes, contentDigest } from "../digest.js";
import { hex, unhex } from "../versions.js";

const text = (bytes) => Buffer.from(bytes).toString("latin1");
const made = (edit) => {
  const ydoc = new Y.Doc();
  edit(ydoc);
  return ydoc;
};
const sized = (string) => `\0\0\0${String.fromCharCode(Buffer.byteLength(string))}${Buffer.from(string).toString("latin1")}`;

test("an empty document and one with empty roots have equal digests", () => {
  const empty = made((ydoc) => {
    ydoc.getText("t").insert(0, "x");
    ydoc.getText("t").delete(0, 1);
    ydoc.getArray("a");
    ydoc.getMap("m").set("k", 1);
    ydoc.getMap("m").delete("k");
  });
  assert.equal(text(contentBytes(empty)), "");
  assert.equal(hex(contentDigest(empty)), "e3b0c44298fc1c149afbf4c8996fb924"); // of nothing
});

test("every kind of value has its encoding", () => {
  const one = (value) => text(contentBytes(made((ydoc) => ydoc.getArray("a").push([value])))).slice(sized("a").length + 5);
  assert.equal(one(null), "n");
  assert.equal(one(true), "t");
  assert.equal(one(false), "f");
  assert.equal(one(1), "d\x3f\xf0\0\0\0\0\0\0");
  assert.equal(one(1.5), "d\x3f\xf8\0\0\0\0\0\0");
  assert.equal(one(-0), "d\0\0\0\0\0\0\0\0");
  assert.equal(one(NaN), "d\x7f\xf8\0\0\0\0\0\0");
  assert.equal(one([2n ** 53n]), `a\0\0\0\x01d\x43\x40\0\0\0\0\0\0`); // Yjs takes one only inside something
  assert.equal(one([2n ** 53n + 1n]), `a\0\0\0\x01i\0\x20\0\0\0\0\0\x01`);
  assert.equal(one([-(2n ** 63n)]), `a\0\0\0\x01d\xc3\xe0\0\0\0\0\0\0`);
  assert.equal(one([1n - 2n ** 63n]), `a\0\0\0\x01i\x80\0\0\0\0\0\0\x01`);
  assert.equal(one("é😀"), `s${sized("é😀")}`);
  assert.equal(one(Uint8Array.of(1, 2)), "b\0\0\0\x02\x01\x02");
  assert.equal(one([null]), "a\0\0\0\x01n");
  assert.equal(one({ é: null, z: true }), `m\0\0\0\x02${sized("z")}t${sized("é")}n`);
});

test("keys and roots are sorted as UTF-8, not as UTF-16", () => {
  const ydoc = made((one) => {
    one.getMap("m").set("\u{ff5e}", 1); // after a surrogate in UTF-16, before one in UTF-8
    one.getMap("m").set("😀", 2);
    one.getText("😀").insert(0, "x");
    one.getText("\u{ff5e}").insert(0, "x");
  });
  const written = text(contentBytes(ydoc));
  assert.ok(written.indexOf(sized("\u{ff5e}")) < written.indexOf(sized("😀")));
  assert.ok(written.lastIndexOf(sized("\u{ff5e}")) < written.lastIndexOf(sized("😀")));
});

test("nested types are encoded as their values", () => {
  const nested = made((ydoc) => {
    const row = new Y.Map();
    ydoc.getArray("rows").push([row]);
    row.set("item", "tea");
    row.set("note", new Y.Text("hot"));
    row.set("tags", Y.Array.from([1]));
  });
  const plain = made((ydoc) => ydoc.getArray("rows").push([{ item: "tea", note: "hot", tags: [1] }]));
  assert.deepEqual(contentBytes(nested), contentBytes(plain));
});

test("the digest does not depend on a root's opened type, authors or number of edits", () => {
  const [a, b] = [new Y.Doc(), new Y.Doc()];
  a.getText("body").insert(0, "hello");
  a.getMap("m").set("k", 1);
  a.getMap("m").set("k", 2);
  b.getText("body").insert(0, "lo");
  b.getText("body").insert(0, "helxx");
  b.getText("body").delete(3, 2);
  b.getMap("m").set("k", 2);
  const unopened = new Y.Doc();
  Y.applyUpdate(unopened, Y.encodeStateAsUpdate(a));
  assert.deepEqual(contentDigest(a), contentDigest(b));
  assert.deepEqual(contentDigest(a), contentDigest(unopened));
});

test("formatting is ignored; XML has no digest", () => {
  const bold = made((ydoc) => ydoc.getText("t").insert(0, "x", { bold: true }));
  assert.deepEqual(contentDigest(bold), contentDigest(made((ydoc) => ydoc.getText("t").insert(0, "x"))));
  assert.equal(contentDigest(made((ydoc) => ydoc.getXmlFragment("x").insert(0, [new Y.XmlElement("p")]))), null);
  assert.equal(contentDigest(made((ydoc) => ydoc.getMap("m").set("x", new Y.XmlText()))), null);
});

for (const { why, update, digest } of process.env.NNGKIT_DIGESTS ? JSON.parse(readFileSync(process.env.NNGKIT_DIGESTS, "utf8")) : []) {
  test(`made in Python: ${why}`, () => {
    const ydoc = new Y.Doc();
    Y.applyUpdate(ydoc, unhex(update));
    assert.equal(hex(contentDigest(ydoc)), digest);
  });
}
