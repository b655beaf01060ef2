// Versions: the streams that a vector keeps, and their encoding. tests/documents/test_versions.py tests the same in Python.

import assert from "node:assert/strict";
import { test } from "node:test";
import { covers, hex, isOld, prune, raise, streamName, versionsDigest } from "../versions.js";

const stream = (origin, epoch) => streamName(new Uint8Array(8).fill(origin), epoch);

test("a vector covers another if it has at least as much of every stream", () => {
  const [a, b] = [stream(1, 1), stream(2, 1)];
  assert.ok(covers(new Map([[a, 3], [b, 1]]), new Map([[a, 2]])));
  assert.ok(!covers(new Map([[a, 3]]), new Map([[b, 1]])));
  const raised = new Map([[a, 3]]);
  raise(raised, new Map([[a, 2], [b, 1]]));
  assert.deepEqual(raised, new Map([[a, 3], [b, 1]]));
});

test("of one origin the 16 newest streams are kept, in any order of arrival", () => {
  const versions = new Map([5, 1, 20, ...Array.from({ length: 15 }, (_, i) => i + 6)].map((epoch) => [stream(1, epoch), epoch]));
  versions.set(stream(2, 1), 1);
  assert.equal(versions.size, 18);
  prune(versions);
  assert.deepEqual([...versions.values()].sort((a, b) => a - b), [1, ...Array.from({ length: 16 }, (_, i) => i + 5)]);
  assert.ok(versions.has(stream(2, 1)));
  assert.ok(isOld(stream(1, 1), versions));
  assert.ok(!isOld(stream(1, 5), versions), "it is there");
  assert.ok(!isOld(stream(1, 21), versions));
  assert.ok(!isOld(stream(3, 1), versions));
});

test("the 1024 newest streams in all are kept", () => {
  const versions = new Map(Array.from({ length: 1030 }, (_, i) => [streamName(Uint8Array.of(1, 0, 0, 0, 0, 0, i >> 8, i & 255), 1000 - (i >> 1)), 1]));
  prune(versions);
  assert.equal(versions.size, 1024);
  assert.ok(versions.has(streamName(Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0), 1000)));
  assert.ok(isOld(stream(0, 1), versions));
});

test("equal versions have equal digests, in any order", () => {
  const rows = [[stream(1, 10), 1], [stream(1, 9), 2], [stream(0, 9), 2 ** 40]];
  assert.deepEqual(versionsDigest(new Map(rows)), versionsDigest(new Map(rows.toReversed?.() ?? rows.slice().reverse())));
  assert.equal(hex(versionsDigest(new Map())), "76be8b528d0075f7"); // of h'80', an empty list
});

test("epochs are compared as numbers, not as text", () => {
  const versions = new Map([9, 10, 100].map((epoch) => [stream(1, epoch), 1]));
  for (let epoch = 1000; epoch < 1014; epoch++) versions.set(stream(1, epoch), 1);
  prune(versions);
  assert.ok(!versions.has(stream(1, 9)));
  assert.ok(versions.has(stream(1, 10)));
});
