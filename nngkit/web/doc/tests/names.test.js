// Names of documents: the same are refused as in Python.
//
// NNGKIT_NAMES names a file of Python's verdicts: [{ name, why }], `why` null for a valid name.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { wrong } from "../names.js";

test("a name is a path of printable text", () => {
  for (const name of ["minutes", "minutes/2026-11", "a b", "mañana/😀", "...", "a/.b", "x".repeat(200)]) assert.equal(wrong(name), null);
});

test("names that leave their folder are refused", () => {
  for (const name of ["/etc/passwd", "a//b", "a/", "..", "../etc", "a/../b", "./a"]) assert.match(wrong(name), /segment/);
  assert.match(wrong("a\\..\\b"), /backslash/);
});

test("names that look like others are refused", () => {
  for (const name of ["a\0b", "a\nb", "a\u202eb", "a\u00a0b", "\u2028", "\ud800", "a\udc00"]) assert.match(wrong(name), /printed/);
});

test("an empty name is refused", () => assert.equal(wrong(""), "is empty"));

test("the length of a name is counted in bytes", () => {
  assert.equal(wrong("é".repeat(100)), null);
  assert.match(wrong(`${"é".repeat(100)}x`), /longer/);
});

for (const { name, why } of process.env.NNGKIT_NAMES ? JSON.parse(readFileSync(process.env.NNGKIT_NAMES, "utf8")) : []) {
  test(`Python gives the same reason for ${JSON.stringify(name)}`, () => assert.equal(wrong(name), why));
}
