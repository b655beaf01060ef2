// Names of documents: refused here as they are in Python.
//
// NNGKIT_NAMES names a file of what Python says of some: [{ name, why }], `why` null where there may be one.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { wrong } from "../names.js";

test("a name is a path of printable text", () => {
  for (const name of ["minutes", "minutes/2026-11", "a b", "mañana/😀", "...", "a/.b", "x".repeat(200)]) assert.equal(wrong(name), null);
});

test("what would leave its folder is refused", () => {
  for (const name of ["/etc/passwd", "a//b", "a/", "..", "../etc", "a/../b", "./a"]) assert.match(wrong(name), /segment/);
  assert.match(wrong("a\\..\\b"), /backslash/);
});

test("what would deceive the eye is refused", () => {
  for (const name of ["a\0b", "a\nb", "a\u202eb", "a\u00a0b", "\u2028", "\ud800", "a\udc00"]) assert.match(wrong(name), /printed/);
});

test("no name is empty", () => assert.equal(wrong(""), "is empty"));

test("a name is counted in bytes", () => {
  assert.equal(wrong("é".repeat(100)), null);
  assert.match(wrong(`${"é".repeat(100)}x`), /longer/);
});

for (const { name, why } of process.env.NNGKIT_NAMES ? JSON.parse(readFileSync(process.env.NNGKIT_NAMES, "utf8")) : []) {
  test(`Python says the same of ${JSON.stringify(name)}`, () => assert.equal(wrong(name), why));
}
