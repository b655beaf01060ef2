// What peers in Python cannot store of a Yjs document: the author is told at once, before anything is sent. Pure.
//
//     ydoc.on("update", (update, origin, ydoc, transaction) => unstorable(transaction));   // null, or the reason as text
//
// The peer checks each update again, strictly; what needs its view, such as an edit that splits a character, it finds alone.

import * as Y from "yjs";
import { wellFormed } from "./strings.js";

const DEEPEST = 32; // lists and objects within each other
const TYPES = new Map([[Y.Text, true], [Y.Array, true], [Y.Map, true]]); // not their subclasses, which are XML
const INTEGERS = [-(2n ** 63n), 2n ** 63n - 2n]; // the peer's engine would send 2^63-1 as another number

/** Return why a transaction cannot be stored; null if it can. */
export function unstorable({ doc, beforeState, afterState }) {
  for (const [client, after] of afterState) {
    const before = beforeState.get(client) ?? 0;
    if (after === before) continue;
    const structs = doc.store.clients.get(client);
    for (let i = Y.findIndexSS(structs, before); i < structs.length; i++) {
      const why = structs[i] instanceof Y.Item ? item(structs[i], Math.max(0, before - structs[i].id.clock)) : null;
      if (why) return why;
    }
  }
  return null;
}

/** `known`: its length before the transaction; Yjs has joined it with what was typed before. */
function item({ content, parentSub }, known) {
  const key = parentSub === null ? null : text(parentSub);
  if (key) return key;
  if (content instanceof Y.ContentString) return text(content.str.slice(known));
  if (content instanceof Y.ContentAny) return first(content.arr.slice(known), (one) => value(one, 0));
  if (content instanceof Y.ContentType) return TYPES.has(content.type.constructor) ? null : "it holds XML, or another type that is not a text, array or map";
  if (content instanceof Y.ContentEmbed) return "it holds an embedded object";
  if (content instanceof Y.ContentDoc) return "it holds a document inside the document";
  return null;
}

function value(one, depth) {
  if (depth > DEEPEST) return `it holds values nested more than ${DEEPEST} deep`;
  if (typeof one === "string") return text(one);
  if (typeof one === "bigint") return one < INTEGERS[0] || one > INTEGERS[1] ? "it holds an integer of more than 64 bits" : null;
  if (typeof one !== "object" || one === null || one instanceof Uint8Array) return null;
  if (Array.isArray(one)) return first(one, (inner) => value(inner, depth + 1));
  const prototype = Object.getPrototypeOf(one);
  if (prototype !== Object.prototype && prototype !== null) return `it holds a ${one.constructor?.name ?? "value"}, which is no JSON`;
  return first(Object.entries(one), ([key, inner]) => text(key) ?? value(inner, depth + 1));
}

const text = (string) => (wellFormed(string) === string ? null : "it holds half a character, a lone surrogate");

function first(items, judge) {
  for (const one of items) {
    const why = judge(one);
    if (why) return why;
  }
  return null;
}
