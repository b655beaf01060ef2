// Edits of strings: the computed change is the actual one, and no character is ever split.

import assert from "node:assert/strict";
import { test } from "node:test";
import { awaitsHalf, change, moved, parts, wellFormed } from "../strings.js";

const CASES = [
  ["", "a", 1, [0, 0, "a"]],
  ["aa", "aaa", 1, [0, 0, "a"]],
  ["aa", "aaa", 2, [1, 0, "a"]],
  ["aa", "aaa", 3, [2, 0, "a"]],
  ["aaa", "aa", 1, [1, 1, ""]],
  ["abc", "axc", 2, [1, 1, "x"]],
  ["same", "same", 2, [2, 0, ""]],
  ["😀", "😁", 2, [0, 2, "😁"]], // these share their first unit
  ["😀a", "🨀a", 2, [0, 2, "🨀"]], // and these their second
];
for (const [before, after, caret, [at, removed, inserted]] of CASES) {
  test(`${before} becomes ${after} with the caret at ${caret}`, () => assert.deepEqual(change(before, after, caret), { at, removed, inserted }));
}

test("the change applied to the old text gives the new text, whatever the caret", () => {
  const alphabet = ["a", "b", "😀", "😁", "🨀", "\u{10000}"];
  let state = 1;
  const below = (limit) => (state = (Math.imul(state, 1103515245) + 12345) >>> 0) % limit;
  const word = () => Array.from({ length: below(6) }, () => alphabet[below(alphabet.length)]).join("");
  for (let i = 0; i < 3000; i++) {
    const [before, after] = [word(), word()];
    const { at, removed, inserted } = change(before, after, below(after.length + 1));
    assert.equal(before.slice(0, at) + inserted + before.slice(at + removed), after);
    for (const part of [before.slice(0, at), before.slice(at, at + removed), inserted]) assert.ok(part.isWellFormed?.() ?? true);
  }
});

test("a lone surrogate becomes U+FFFD", () => {
  for (const [text, whole] of [["", ""], ["a😀b", "a😀b"], ["\u{10ffff}", "\u{10ffff}"], ["\ufffd", "\ufffd"], ["a\ud83d", "a\ufffd"], ["\ude00b", "\ufffdb"], ["\ud83d\ud83d\ude00\ude00", "\ufffd😀\ufffd"], ["\ude00\ud83d", "\ufffd\ufffd"]]) {
    assert.equal(wellFormed(text), whole);
    assert.equal(new TextDecoder().decode(new TextEncoder().encode(text)), whole); // as others would get it
  }
});

test("a high surrogate before the caret may get its second half", () => {
  assert.ok(awaitsHalf("a\ud83d", 2));
  assert.ok(awaitsHalf("\ud83db", 1));
  for (const [text, at] of [["", 0], ["a", 1], ["😀", 2], ["😀", 1], ["\ude00", 1], ["\ud83d", 0]]) assert.ok(!awaitsHalf(text, at));
});

test("a long text is split between characters", () => {
  assert.deepEqual(parts("ab😀😀c", 3), ["ab", "😀", "😀c"]);
  assert.deepEqual(parts("", 3), []);
});

test("positions move with remote edits before them", () => {
  assert.equal(moved(5, [{ retain: 2 }, { insert: "xy" }]), 7);
  assert.equal(moved(5, [{ retain: 2 }, { delete: 2 }]), 3);
  assert.equal(moved(5, [{ retain: 4 }, { delete: 9 }]), 4);
  assert.equal(moved(5, [{ retain: 6 }, { insert: "x" }]), 5);
  assert.equal(moved(5, [{ retain: 5 }, { insert: "x" }]), 6);
  assert.equal(moved(5, [{ retain: 5 }, { insert: "x" }], true), 5);
});
