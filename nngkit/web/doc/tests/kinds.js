// Programs with Yjs that write what a peer in Python cannot store: what does each say, and what does the peer have?
//
//     node --experimental-websocket tests/kinds.js ADDRESS TOKEN
//
// Each kind has a document of its own: a plain edit, then one of the kind, then a plain one. Prints a line of JSON for each:
// { kind, doc, checked, code, why, saved, own }. `checked` false: without the check of storable.js, so that the peer decides.

import * as Y from "yjs";
import { Peer } from "../peer.js";

const nested = (depth) => {
  let value = 1;
  for (let i = 0; i < depth; i++) value = i % 2 ? [value] : { a: value };
  return value;
};
const body = (ydoc) => ydoc.getText("body");
const xml = (ydoc) => ydoc.getXmlFragment("page");

const KINDS = {
  "XML text": (ydoc) => xml(ydoc).insert(0, [new Y.XmlText("in XML")]),
  "XML element": (ydoc) => xml(ydoc).insert(0, [new Y.XmlElement("p")]),
  "XML in a map": (ydoc) => ydoc.getMap("map").set("page", new Y.XmlFragment()),
  "embedded object": (ydoc) => body(ydoc).insertEmbed(0, { image: "x.png" }),
  "document in a map": (ydoc) => ydoc.getMap("map").set("inner", new Y.Doc()),
  "document in an array": (ydoc) => ydoc.getArray("list").insert(0, [new Y.Doc()]),
  "deep value": (ydoc) => ydoc.getMap("map").set("deep", nested(33)),
  "half a character deleted": (ydoc) => body(ydoc).delete(body(ydoc).toString().indexOf("😀"), 1),
  "text inside a character": (ydoc) => body(ydoc).insert(body(ydoc).toString().indexOf("😀") + 1, "x"),
  "2^63-1": (ydoc) => ydoc.getMap("map").set("large", 2n ** 63n - 1n),
};
// The bytes of these are valid, but mean something else than the author sees.
const ALTERED = {
  "half a character": (ydoc) => body(ydoc).insert(0, "\ud83d"),
  "half a character in a key": (ydoc) => ydoc.getMap("map").set("\ude00", 1),
  "half a character in a value": (ydoc) => ydoc.getMap("map").set("key", { list: ["\ud83d"] }),
  "2^64": (ydoc) => ydoc.getMap("map").set("large", 2n ** 64n),
  date: (ydoc) => ydoc.getMap("map").set("date", new Date(0)),
};
const STORED = {
  "value 32 deep": (ydoc) => ydoc.getMap("map").set("deep", nested(32)),
  "formatted text": (ydoc) => body(ydoc).insert(0, "bold", { bold: true }),
  "2^60": (ydoc) => ydoc.getMap("map").set("large", 2n ** 60n),
};

const [address, token] = process.argv.slice(2);
const peer = new Peer({ addresses: [address], token, name: "program", host: "127.0.0.1", WebSocket: globalThis.WebSocket, random: Math.random });
const waiting = new Set();
peer.onRoom = () => { for (const look of waiting) look(); };

function until(holds) {
  return new Promise((resolve) => {
    const look = () => {
      if (!holds()) return;
      waiting.delete(look);
      resolve();
    };
    waiting.add(look);
    look();
  });
}

async function run(kind, edit, checked) {
  const doc = `${kind}${checked ? "" : ", unchecked"}`;
  const room = await peer.open(doc, null);
  const { engine } = room.replica;
  const report = engine.onEdit;
  if (!checked) engine.onEdit = (update) => report(update);
  body(room.ydoc).insert(0, "plain 😀 ");
  await until(() => room.isSaved);
  edit(room.ydoc);
  await until(() => room.refusal || room.isSaved);
  body(room.ydoc).insert(0, "later ");
  const own = room.refusal ? 2 : 0;
  await until(() => room.replica.own.length === own && (own || room.isSaved));
  const { code = null, why = null } = room.refusal ?? {};
  console.log(JSON.stringify({ kind, doc, checked, code, why, saved: room.isSaved, own: room.replica.own.length }));
}

peer.start();
const all = Object.entries(KINDS).flatMap(([kind, edit]) => [run(kind, edit, true), run(kind, edit, false)]);
all.push(...Object.entries({ ...ALTERED, ...STORED }).map(([kind, edit]) => run(kind, edit, true)));
await Promise.all(all);
peer.stop();
