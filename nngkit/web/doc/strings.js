// Edits of plain strings: the change in a text field, without ever splitting a character. Pure.
//
// Yjs and text fields count UTF-16 units; a character beyond U+FFFF has two. Yjs replaces a split pair by U+FFFD, so every
// position here is between whole characters.

const isHigh = (unit) => unit >= 0xd800 && unit < 0xdc00;
const isLow = (unit) => unit >= 0xdc00 && unit < 0xe000;
const splits = (text, at) => at > 0 && at < text.length && isHigh(text.charCodeAt(at - 1)) && isLow(text.charCodeAt(at));

/**
 * Replace each lone surrogate in `text` by U+FFFD. A lone surrogate is no character: it has no bytes in UTF-8, so a document
 * that held one would differ from the copies of other peers, and its digest would not show it.
 */
export const wellFormed = (text) => text.replace(/[\ud800-\udfff]/gu, "\ufffd"); // with "u", pairs do not match

/**
 * Return { at, removed, inserted }: the smallest change from `before` to `after`. `caret`, in `after`, decides between several:
 * typing an "a" beside an "a" leaves the caret behind the new one.
 */
export function change(before, after, caret = after.length) {
  let end = 0; // equal units at the end
  const most = Math.min(before.length, after.length);
  while (end < Math.min(most, after.length - caret) && before.charCodeAt(before.length - 1 - end) === after.charCodeAt(after.length - 1 - end)) end++;
  let at = 0;
  while (at < most - end && before.charCodeAt(at) === after.charCodeAt(at)) at++;
  // without a helpful caret the equal end may be longer
  while (end < most - at && before.charCodeAt(before.length - 1 - end) === after.charCodeAt(after.length - 1 - end)) end++;
  while (splits(before, at) || splits(after, at)) at--;
  while (splits(before, before.length - end) || splits(after, after.length - end)) end--;
  return { at, removed: before.length - end - at, inserted: after.slice(at, after.length - end) };
}

/** Return true if a lone high surrogate stands before `at`: some browsers deliver the second half as the next input. */
export const awaitsHalf = (text, at) => at > 0 && isHigh(text.charCodeAt(at - 1)) && !splits(text, at);

/** Split `text` into parts of at most `most` units. */
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

/** Return position `at` after the changes of a Yjs delta; text inserted exactly there goes behind it if `stays`. */
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
