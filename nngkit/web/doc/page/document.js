// One document on the page: text and table, people and cursors, undo, digest.
//
//     const update = showDocument({ config, peer, keep, room, nameKey }, "minutes", random);    // once
//     peer.onRoom = update;                                                            // after every change

import * as Y from "yjs";
import { hex } from "../versions.js";
import { at, notice, remember } from "./page.js";
import { People } from "./people.js";
import { Table } from "./table.js";
import { TextPane } from "./text.js";
import { ScrollAnchor } from "./scroll_anchor.js";

export const LONGEST_NAME = 40;
const HUES = 8; // colours in style.css
const QUIET = 300; // ms without a change until word count and digest are updated

export function showDocument(view, name, random) {
  const { peer, keep, room, nameKey } = view;
  at("name").textContent = document.title = name;
  at("name").title = name;
  for (const id of ["main", "here", "undo", "redo", "all", "skip"]) at(id).hidden = false;
  view.onOnline = () => showNames(view, name);
  at("skip").addEventListener("click", (event) => {
    event.preventDefault(); // keeps the document in the address
    at("text").focus();
  });

  const edited = [room.ydoc.getText("body"), room.ydoc.getArray("columns"), room.ydoc.getArray("rows")];
  const publishCursor = introduce(peer, room, nameKey, random);
  const scroll = new ScrollAnchor({ field: at("text"), mirror: at("mirror"), table: at("table"), top: () => at("bar").getBoundingClientRect().bottom });
  const onHalf = () => notice("Your input contained an incomplete character, which a document cannot store. It was replaced by \ufffd.");
  const text = new TextPane({ field: at("text"), mirror: at("mirror"), ytext: edited[0], scroll, onCursor: publishCursor, onHalf });
  const table = new Table({ table: at("table"), columns: edited[1], rows: edited[2], scroll, onCursor: publishCursor, onHalf });
  tabling(table);
  undoing(edited);
  const changed = () => {
    at("no-table").hidden = table.names.length > 0;
    at("add-row").disabled = table.names.length === 0;
  };
  let timer = null;
  const quiet = () => {
    clearTimeout(timer);
    timer = setTimeout(() => { // these read the whole document, so they wait for a pause in typing
      at("count").textContent = counted(edited[0].toString());
      showDigest(room);
    }, QUIET);
  };
  room.ydoc.on("update", () => { changed(); quiet(); });
  changed();
  quiet();

  const crowd = new People({ list: at("people"), more: at("more") });
  let last = "";
  const update = () => {
    const here = others(room);
    const now = JSON.stringify(here, (_, item) => (item instanceof Uint8Array ? hex(item) : item));
    if (now === last) return;
    last = now;
    crowd.show(here);
    text.show(here.filter(({ cursor }) => cursor?.text === "body"));
    table.show(here.filter(({ cursor }) => cursor?.array === "rows"));
  };
  // Edits of others change the meaning of a cursor's position, and undo may move it.
  room.ydoc.on("afterTransaction", () => { last = ""; peer.onRoom(room); });
  keeping(keep, room);
  return update;
}

/** Set up the user's own name and colour; return a function that announces a cursor, or null for none. */
function introduce(peer, room, nameKey, random) {
  const hue = Math.floor(random() * HUES);
  const before = peer.name;
  const publishCursor = (cursor) => { room.presence.local = { client: room.ydoc.clientID, user: { name: peer.name, color: hue }, cursor }; };
  publishCursor(null);
  at("me").value = peer.name;
  at("me").dataset.hue = hue;
  at("me").addEventListener("change", ({ target }) => {
    peer.name = target.value.trim().slice(0, LONGEST_NAME) || before;
    remember(localStorage, nameKey, peer.name);
    publishCursor(room.presence.local.cursor);
  });
  return publishCursor;
}

function tabling(table) {
  at("add-row").addEventListener("click", () => table.addRow());
  const form = at("column-form");
  const ask = (open) => {
    form.hidden = !open;
    at(open ? "column-name" : "add-column").focus();
  };
  at("add-column").addEventListener("click", () => ask(true));
  at("column-cancel").addEventListener("click", () => ask(false));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    table.addColumn(at("column-name").value.trim());
    form.reset();
    ask(false);
  });
}

function undoing(types) {
  const undo = new Y.UndoManager(types); // this page's edits only: other peers' transactions have another origin
  const buttons = () => {
    at("undo").disabled = !undo.canUndo();
    at("redo").disabled = !undo.canRedo();
  };
  for (const event of ["stack-item-added", "stack-item-popped", "stack-cleared"]) undo.on(event, buttons);
  at("undo").addEventListener("click", () => undo.undo());
  at("redo").addEventListener("click", () => undo.redo());
  // The field's own undo does not know other peers' edits.
  at("text").addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.altKey) return;
    const key = event.key.toLowerCase();
    if (key !== "z" && key !== "y") return;
    event.preventDefault();
    if (at("text").readOnly) return;
    if (key === "y" || event.shiftKey) undo.redo();
    else undo.undo();
  });
}

function keeping(keep, room) {
  if (keep) keep.onFailure = (error) => notice(`This browser no longer stores your changes (${error.message}). Keep this page open until they are sent.`);
  addEventListener("visibilitychange", () => keep?.written());
  addEventListener("beforeunload", (event) => {
    if (!keep && room.replica.own.length) event.preventDefault(); // closing would lose edits
  });
}

function showNames({ config, peer }, current) {
  const names = [...new Set([...config.documents, ...peer.home.documents, current])].sort();
  at("picker").hidden = names.length < 2;
  at("documents").replaceChildren(...names.map((name) => new Option(name, name, name === current, name === current)));
  at("documents").onchange = ({ target }) => { location.hash = new URLSearchParams({ doc: target.value }); };
}

function showDigest(room) {
  const digest = room.replica.engine.digest();
  const text = digest ? hex(digest) : "";
  at("digest").replaceChildren("content ", Object.assign(document.createElement("code"), { textContent: text.slice(0, 12) }));
  at("digest").dataset.digest = text;
  at("digest").title = `${text}: equal for equal content`;
}

function others(room) {
  const people = [...room.presence.others].map(([stream, { user, cursor }]) => ({ stream, name: nameOf(user), hue: hueOf(user, stream), cursor }));
  return people.sort((a, b) => (a.name < b.name ? -1 : 1));
}

function nameOf(user) {
  const name = typeof user === "string" ? user : user?.name;
  return typeof name === "string" && name.trim() ? name.trim().slice(0, LONGEST_NAME) : "Anonymous";
}

/** Return the colour that a person chose, else one derived from the stream, so that all pages show the same. */
function hueOf(user, stream) {
  const { color } = user ?? {};
  return Number.isInteger(color) && color >= 0 && color < HUES ? color : parseInt(stream.slice(0, 2), 16) % HUES;
}

function counted(text) {
  const words = text.split(/\s+/u).filter(Boolean).length;
  return `${words} ${words === 1 ? "word" : "words"}`;
}
