// Edits of plain strings: what a text field has changed, without ever splitting a character. Pure.
//
// Yjs and text fields count UTF-16 units, of which a character beyond U+FFFF has two. Yjs puts U+FFFD where such a pair is
// cut, so every position here stands between whole characters.

const isHigh = (unit) => unit >= 0xd800 && unit < 0xdc00;
const isLow = (unit) => unit >= 0xdc00 && unit < 0xe000;
const splits = (text, at) => at > 0 && at < text.length && isHigh(text.charCodeAt(at - 1)) && isLow(text.charCodeAt(at));

/**
 * `text` with U+FFFD in the place of each half of a surrogate pair that stands alone. Such a half is no character: it has
 * no bytes in UTF-8, so a document that held one would differ from what others get of it, and its digest would not show it.
 */
export const wellFormed = (text) => text.replace(/[\ud800-\udfff]/gu, "\ufffd"); // with "u" a whole pair does not match

/**
 * { at, removed, inserted }: the smallest change that makes `after` of `before`. `caret`, in `after`, says which of several
 * it was: whoever types an "a" beside an "a" leaves the caret behind the new one.
 */
export function change(before, after, caret = after.length) {
  let end = 0; // units that are the same at the end
  const most = Math.min(before.length, after.length);
  while (end < Math.min(most, after.length - caret) && before.charCodeAt(before.length - 1 - end) === after.charCodeAt(after.length - 1 - end)) end++;
  let at = 0;
  while (at < most - end && before.charCodeAt(at) === after.charCodeAt(at)) at++;
  // when the caret misled us, or there was none, the end may still be longer
  while (end < most - at && before.charCodeAt(before.length - 1 - end) === after.charCodeAt(after.length - 1 - end)) end++;
  while (splits(before, at) || splits(after, at)) at--;
  while (splits(before, before.length - end) || splits(after, after.length - end)) end--;
  return { at, removed: before.length - end - at, inserted: after.slice(at, after.length - end) };
}

/** Whether the first half of a character stands before `at`, alone: some browsers bring the second half as the next input. */
export const awaitsHalf = (text, at) => at > 0 && isHigh(text.charCodeAt(at - 1)) && !splits(text, at);

/** `text` in parts of at most `most` units. */
export function parts(text, most) {
  const found = [];
  for (let at = 0; at < text.length; ) {
    let end = Math.min(text.length, at + most);
    if (splits(text, end)) end--;
    found.push(text.slice(at, end));
    at = end;
  }
  return found;
}

/** Where position `at` is after the changes of a Yjs delta; what is inserted right there stays behind it if `stays`. */
export function moved(at, delta, stays = false) {
  let here = 0;
  for (const { retain, insert, delete: gone } of delta) {
    if (here > at) break;
    if (retain !== undefined) here += retain;
    else if (insert !== undefined) {
      const length = typeof insert === "string" ? insert.length : 1;
      if (here < at || (here === at && !stays)) at += length;
      here += length;
    } else at -= Math.min(gone, Math.max(0, at - here));
  }
  return at;
}
