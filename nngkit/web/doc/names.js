// Names of documents: the rules of nngkit/documents/names.py, with the same messages. Pure.
//
//     wrong("minutes/2026-11")      // null
//     wrong("../etc")               // 'has a segment that is empty, "." or ".."'

const LONGEST = 200; // bytes of UTF-8
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u; // as Python's str.isprintable; lone surrogates too

/** Return why `name` is no valid name of a document; null if it is. */
export function wrong(name) {
  if (!name) return "is empty";
  if (UNPRINTABLE.test(name)) return "has characters that cannot be printed";
  if (new TextEncoder().encode(name).length > LONGEST) return `is longer than ${LONGEST} bytes`;
  if (name.includes("\\")) return "has a backslash, which some systems take for a slash";
  if (name.split("/").some((segment) => ["", ".", ".."].includes(segment))) return 'has a segment that is empty, "." or ".."';
  return null;
}
