// One replica against a home that drops edits that arrive too early: order, gaps, deps, giving, transfers; and random schedules.

import assert from "node:assert/strict";
import { test } from "node:test";
import { encode } from "cborg";
import * as Y from "yjs";
import { Engine, REMOTE } from "../engine.js";
import { Replica } from "../replica.js";
import { hex, streamName, versionsDigest } from "../versions.js";
import { decodeBus, decodeReply, encodeRequest } from "../wire.js";
import { Home } from "./home.js";

const MAX_UPDATE = 1 << 20;

function chance(seed) {
  let state = seed;
  return () => ((state = (Math.imul(state, 1103515245) + 12345) >>> 0) / 2 ** 32);
}

class Page {
  constructor(number, { epoch = 1, kept = null, random = chance(number) } = {}) {
    this.stream = streamName(Uint8Array.of(number, 0, 0, 0, 0, 0, 0, 0), epoch);
    this.ydoc = new Y.Doc();
    if (kept) Y.applyUpdate(this.ydoc, kept.update, REMOTE);
    this.text = this.ydoc.getText("body");
    const engine = new Engine(this.ydoc);
    this.replica = new Replica({ doc: "d", stream: this.stream, engine, random, versions: kept?.versions, own: kept?.own });
    engine.onEdit = (update, why) => this.replica.edited(update, this.now ?? 0, why);
  }
  kept() {
    return { update: Y.encodeStateAsUpdate(this.ydoc), versions: this.replica.versions, own: this.replica.own };
  }
  receive(bytes, now) {
    const message = decodeBus(bytes);
    if (message.kind === "update") this.replica.received(message, now);
    else for (const row of message.docs) this.replica.received(row, now, message.stream);
  }
  /** Answer its requests until there are no more; return what it put on the BUS. */
  settle(home, now) {
    const sent = [];
    for (let i = 0; ; i++) {
      assert.ok(i < 100, "it asks for ever");
      const { bus, ask } = this.replica.evaluate(now);
      sent.push(...bus);
      if (!ask) return sent;
      this.replica.answered(decodeReply(home.answer(encodeRequest(this.stream, ask))), now);
    }
  }
  join(home, now = 0) {
    this.replica.connected(home.stream, MAX_UPDATE, now);
    return this.settle(home, now);
  }
}

const write = (home, text, at = 0) => home.ydoc.getText("body").insert(at, text);
const deps = (bytes) => decodeBus(bytes).edits.map((edit) => Object.fromEntries(edit.deps));

test("a page that joins gets the document, in chunks if it is large", () => {
  const home = new Home(1);
  write(home, "x".repeat(5000));
  const page = new Page(1);
  page.join(home);
  assert.equal(page.text.toString(), home.ydoc.getText("body").toString());
  assert.deepEqual(page.replica.versions, home.versions);
  assert.ok(page.replica.joined);
});

test("a chunk with a wrong hash is refused, and the transfer succeeds when requested again", () => {
  const home = new Home(1);
  write(home, "x".repeat(900));
  const page = new Page(1);
  page.replica.connected(home.stream, MAX_UPDATE, 0);
  for (const spoil of [false, true]) {
    const reply = decodeReply(home.answer(encodeRequest(page.stream, page.replica.evaluate(0).ask)));
    if (spoil) reply.chunks[3].data = Uint8Array.from(reply.chunks[3].data, (byte) => byte ^ 1);
    page.replica.answered(reply, 0);
  }
  assert.equal(page.replica.refused, 1);
  assert.equal(page.replica.evaluate(0).ask, null, "it waits before it asks again");
  assert.equal(page.text.toString(), "");
  page.settle(home, 10);
  assert.equal(page.text.length, 900);
});

test("edits are held until the missing ones before them arrive, which are requested after a moment", () => {
  const [home, page] = [new Home(1), new Page(1)];
  page.join(home);
  write(home, "c");
  write(home, "b");
  write(home, "a");
  const [first, second, third] = home.sent();
  page.receive(third, 1);
  page.receive(second, 1);
  assert.deepEqual([page.text.toString(), page.replica.heldCount], ["", 2]);
  page.replica.evaluate(1);
  assert.equal(page.replica.evaluate(1.01).ask, null);
  const { ask } = page.replica.evaluate(1.03);
  assert.deepEqual([ask.kind, ask.ranges], ["nack", [{ stream: home.stream, first: 1, last: 1 }]]);
  page.receive(first, 1.04);
  assert.deepEqual([page.text.toString(), page.replica.heldCount], ["abc", 0]);
  page.receive(first, 1.04);
  assert.equal(page.replica.refused, 0);
});

test("an edit waits for its deps, which are requested", () => {
  const [home, ann, ben] = [new Home(1), new Page(1), new Page(2)];
  ann.join(home);
  ben.join(home);
  write(home, "one ");
  const [lost] = home.sent();
  ann.receive(lost, 1);
  ann.now = 1;
  ann.text.insert(4, "two");
  const [update] = ann.replica.evaluate(1).bus;
  assert.deepEqual(deps(update), [{ [home.stream]: 1 }]);
  ben.receive(update, 1);
  assert.equal(ben.text.toString(), "");
  assert.equal(ben.replica.evaluate(1).ask, null);
  const { ask } = ben.replica.evaluate(2);
  assert.deepEqual(ask.ranges, [{ stream: home.stream, first: 1, last: 1 }]);
  ben.replica.answered(decodeReply(home.answer(encodeRequest(ben.stream, ask))), 2);
  assert.equal(ben.text.toString(), "one two");
});

test("deps omit versions that earlier edits have named", () => {
  const [home, page] = [new Home(1), new Page(1)];
  page.join(home);
  const edit = () => {
    page.text.insert(0, "x");
    return deps(page.replica.evaluate(0).bus[0])[0];
  };
  assert.deepEqual(edit(), {});
  write(home, "y");
  home.sent().forEach((message) => page.receive(message, 0));
  assert.deepEqual(edit(), { [home.stream]: 1 });
  assert.deepEqual(edit(), {});
});

test("edits lost on the BUS are given, and no others", () => {
  const [home, page] = [new Home(1), new Page(1)];
  page.join(home);
  page.now = 1;
  page.text.insert(0, "a");
  page.replica.evaluate(1).bus.forEach((message) => home.receive(message));
  page.text.insert(1, "b");
  page.text.insert(2, "c");
  page.replica.evaluate(1); // lost
  page.receive(home.heartbeat(), 1.1);
  assert.equal(page.replica.evaluate(1.3).ask, null);
  const { ask } = page.replica.evaluate(1.6);
  assert.deepEqual([ask.kind, ask.versions], ["give", new Map([[page.stream, 3]])]);
  page.replica.answered(decodeReply(home.answer(encodeRequest(page.stream, ask))), 1.6);
  assert.equal(home.ydoc.getText("body").toString(), "abc");
  assert.deepEqual([page.replica.own.length, page.replica.inSync], [0, true]);
});

test("edits made offline, in this load or an earlier one, are given on reconnection", () => {
  const home = new Home(1);
  write(home, "start ");
  const before = new Page(1);
  before.join(home);
  before.replica.disconnected();
  before.text.insert(6, "one ");
  write(home, "x");
  const after = new Page(1, { epoch: 2, kept: before.kept() });
  after.text.insert(10, "two ");
  assert.equal(after.replica.own.length, 2);
  after.join(home);
  assert.equal(home.ydoc.getText("body").toString(), "xstart one two ");
  assert.equal(after.text.toString(), "xstart one two ");
  assert.deepEqual(after.replica.versions, home.versions);
  assert.equal(after.replica.own.length, 0);
});

test("a home that lost the document gets all of it", () => {
  const page = new Page(1);
  const old = new Home(1);
  write(old, "kept");
  page.join(old);
  page.text.insert(4, " here");
  page.settle(old, 5);
  const fresh = new Home(2);
  page.join(fresh, 9);
  assert.equal(fresh.ydoc.getText("body").toString(), "kept here");
  assert.deepEqual(fresh.versions, page.replica.versions);
});

test("an edit too large for the BUS is given at once", () => {
  const [home, page] = [new Home(1), new Page(1)];
  page.join(home);
  page.text.insert(0, "x".repeat(300000));
  assert.deepEqual(page.settle(home, 0), []);
  assert.equal(home.ydoc.getText("body").length, 300000);
});

test("a lost deletion is detected by the content digests", () => {
  const [home, page] = [new Home(1), new Page(1)];
  write(home, "ab");
  page.join(home);
  Y.applyUpdate(page.ydoc, (() => { // the versions stay: a remote deletion that already counts as applied
    const other = new Y.Doc();
    Y.applyUpdate(other, Y.encodeStateAsUpdate(home.ydoc));
    other.getText("body").delete(0, 1);
    return Y.encodeStateAsUpdate(other, Y.encodeStateVector(home.ydoc));
  })(), REMOTE);
  page.receive(home.heartbeat(), 1);
  page.settle(home, 2);
  page.settle(home, 3);
  assert.deepEqual([page.text.toString(), home.ydoc.getText("body").toString()], ["b", "b"]);
});

test("an invalid update changes nothing, is counted, and the missing edits are requested", () => {
  const [home, page] = [new Home(1), new Page(1)];
  page.join(home);
  write(home, "fine");
  const message = decodeBus(home.sent()[0]);
  message.edits[0].payload = Uint8Array.of(1, 1, 99, 99);
  page.replica.received(message, 1);
  assert.deepEqual([page.replica.refused, page.text.toString(), page.replica.versions.size], [1, "", 0]);
  page.settle(home, 9);
  assert.equal(page.text.toString(), "fine");
});

test("a forged edit of our own stream is refused", () => {
  const page = new Page(1);
  page.replica.received({ kind: "update", stream: page.stream, doc: "d", first: 1, edits: [{ payload: new Uint8Array(2), deps: new Map() }] }, 0);
  assert.deepEqual([page.replica.refused, page.replica.versions.size], [1, 0]);
});

test("held edits are bounded, and the rest arrives as a diff", () => {
  const [home, page] = [new Home(1), new Page(1)];
  page.join(home);
  for (let i = 0; i < 5000; i++) write(home, "x");
  home.sent().slice(1).forEach((message) => page.receive(message, 1));
  assert.equal(page.replica.heldCount, 4096);
  page.settle(home, 1);
  page.settle(home, 2);
  assert.deepEqual([page.text.length, page.replica.heldCount], [5000, 0]);
});

for (let seed = 1; seed <= 150; seed++) {
  test(`schedule ${seed}: 30 % loss, reorder, duplication, restart`, () => {
    const random = chance(seed * 7919);
    const home = new Home(9);
    const pages = [new Page(1, { random }), new Page(2, { random })];
    let now = 0;
    let epoch = 1;
    let queue = []; // { when, to, bytes }
    const post = (to, bytes) => {
      for (let copies = random() < 0.3 ? 0 : random() < 0.1 ? 2 : 1; copies > 0; copies--) queue.push({ when: now + random() * 0.2, to, bytes });
    };
    const step = (lossy) => {
      now += 0.02 + random() * 0.05;
      queue.sort((a, b) => a.when - b.when);
      while (queue.length && queue[0].when <= now) {
        const { to, bytes } = queue.shift();
        if (to === home) home.receive(bytes);
        else to.receive(bytes, now);
      }
      for (const page of pages) {
        page.now = now;
        const { bus, ask } = page.replica.evaluate(now);
        bus.forEach((bytes) => post(home, bytes));
        if (!ask) continue;
        const answer = lossy && random() < 0.3 ? null : home.answer(encodeRequest(page.stream, ask));
        if (answer === null || (lossy && random() < 0.2)) page.replica.failed(now);
        else page.replica.answered(decodeReply(answer), now);
      }
      for (const bytes of home.sent()) pages.forEach((page) => post(page, bytes));
      if (random() < 0.3) pages.forEach((page) => post(page, home.heartbeat()));
    };
    pages.forEach((page) => page.replica.connected(home.stream, MAX_UPDATE, now));
    for (let i = 0; i < 60; i++) {
      for (const { ydoc } of [...pages, home]) {
        if (random() > 0.4) continue;
        const text = ydoc.getText("body");
        if (text.length > 3 && random() < 0.3) text.delete(Math.floor(random() * (text.length - 2)), 2);
        else text.insert(Math.floor(random() * (text.length + 1)), String.fromCharCode(97 + (i % 26)));
      }
      if (random() < 0.05) { // a reload, with what was kept
        const at = random() < 0.5 ? 0 : 1;
        const old = pages[at];
        queue = queue.filter(({ to }) => to !== old);
        pages[at] = new Page(at + 1, { epoch: ++epoch, kept: old.kept(), random });
        pages[at].now = now;
        pages[at].replica.connected(home.stream, MAX_UPDATE, now);
      }
      step(true);
    }
    for (let i = 0; i < 2000; i++) {
      step(false);
      if (pages.every(({ replica }) => replica.inSync && hex(versionsDigest(replica.versions)) === hex(versionsDigest(home.versions)))) break;
    }
    for (const { replica } of pages) {
      assert.equal(hex(replica.engine.digest()), hex(home.engine.digest()));
      assert.deepEqual(new Map([...replica.versions].sort()), new Map([...home.versions].sort()));
      assert.equal(replica.refused, 0);
    }
  });
}

test("an edit that cannot be stored is not sent, nor what follows it; what came before it is", () => {
  const home = new Home(1);
  const page = new Page(2);
  page.join(home);
  page.text.insert(0, "before ");
  page.ydoc.getMap("map").set("deep", 2n ** 64n);
  page.text.insert(0, "after ");
  for (const bytes of page.settle(home, 0.1)) home.receive(bytes);
  assert.equal(home.ydoc.getText("body").toString(), "before ");
  assert.match(page.replica.refusal.why, /64 bits/);
  assert.equal(page.replica.stuck, true);
  page.receive(home.heartbeat(), 0.2);
  page.settle(home, 5);
  assert.equal(page.replica.own.length, 2);
  page.join(home, 6); // found here: another home cannot store it either
  assert.match(page.replica.refusal.why, /64 bits/);
  assert.equal(page.replica.inSync, false);
});

test("a home that refuses a give is given fewer edits, until the refused one is known", () => {
  const home = new Home(1);
  const page = new Page(2);
  for (const word of ["a", "b", "c", "unfit", "d"]) page.text.insert(page.text.length, word);
  const answer = home.answer.bind(home);
  const refused = () => encode([15, [home.origin, 1], "refused", "unfit"]);
  home.answer = (request) => (Buffer.from(request).includes("unfit") ? refused() : answer(request));
  page.replica.connected(home.stream, MAX_UPDATE, 0);
  for (let now = 0; now < 60; now += 1) page.settle(home, now);
  assert.equal(home.ydoc.getText("body").toString(), "abc");
  assert.equal(page.replica.refusal.why, "unfit");
  assert.equal(page.replica.own.length, 2);
  home.answer = answer; // a newer home
  page.join(home, 60);
  page.settle(home, 61);
  assert.equal(home.ydoc.getText("body").toString(), "abcunfitd");
  assert.deepEqual([page.replica.refusal, page.replica.own.length], [null, 0]);
});

test("a heartbeat of the home ends or begins a refusal", () => {
  const home = new Home(1);
  const page = new Page(2);
  page.join(home);
  page.text.insert(0, "x");
  const row = { kind: "heartbeat", doc: "d", versionsDigest: null, contentDigest: null, heads: new Map() };
  page.replica.received({ ...row, refused: [{ stream: page.stream, seq: 1, why: "unfit" }] }, 0.1, home.stream);
  assert.equal(page.replica.refusal.why, "unfit");
  assert.deepEqual(page.settle(home, 9), []);
  page.replica.received({ ...row, refused: [], heads: new Map([[page.stream, 1]]) }, 9.1, home.stream);
  assert.equal(page.replica.refusal, null);
});

test("half a character is found in what was typed, also where it completes earlier text", () => {
  const page = new Page(2);
  page.text.insert(0, "fine \u{1f600}");
  assert.equal(page.replica.refusal, null);
  page.text.insert(page.text.length, "\ud83d");
  assert.match(page.replica.refusal.why, /half a character/);
  const other = new Page(3);
  other.ydoc.getArray("list").push(["a"]);
  other.ydoc.getArray("list").push([{ when: new Date(0) }]);
  assert.match(other.replica.refusal.why, /Date/);
  assert.equal(other.replica.refusal.seq, 2);
});
