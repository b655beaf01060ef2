// The page: reads its configuration and its key, joins, and shows the document, who is here and how the connection is.
//
// The key (token) comes in the fragment of the address, which no server sees; it is taken out of the address bar at once
// and kept for this tab alone. The fragment's `doc` is the document to open: `#token=...&doc=minutes`.

import * as Y from "yjs";
import { Keep } from "../keep.js";
import { LinkLost } from "../link.js";
import { Peer, freshStream } from "../peer.js";
import { hex } from "../versions.js";
import { Table } from "./table.js";
import { TextPane } from "./text.js";

const HUES = 8; // colours in style.css
const QUIET = 300; // ms without a change until words and digest are shown
const LONGEST_NAME = 40;
const at = (id) => document.getElementById(id);
const random = () => crypto.getRandomValues(new Uint32Array(1))[0] / 2 ** 32;

const fragment = new URLSearchParams(location.hash.slice(1));
if (fragment.has("token")) {
  remember(sessionStorage, "token", fragment.get("token"));
  fragment.delete("token");
  history.replaceState(null, "", `${location.pathname}${location.search}${String(fragment) ? `#${fragment}` : ""}`);
}
addEventListener("hashchange", () => location.reload()); // another document, or another key

main().catch((error) => notice(`This page could not start: ${error.message}. Reload it to try again.`));

async function main() {
  const config = await configuration();
  const name = fragment.get("doc") ?? config.documents[0];
  if (!name) throw new Error("there is no document to open; name one in the address, #doc=...");
  at("name").textContent = document.title = name;
  const me = recall(localStorage, "name") ?? `Guest ${1 + Math.floor(random() * 99)}`;
  const hue = Math.floor(random() * HUES);
  const keep = await openKeep(config);
  const stream = keep ? await keep.stream((before) => freshStream(random, Date.now(), before)) : freshStream(random, Date.now());
  const peer = new Peer({
    addresses: config.repair, token: recall(sessionStorage, "token"), name: me, store: config.store, host: location.hostname, WebSocket, random, stream,
    beforeJoining: () => sameStore(config),
  });
  const room = await peer.open(name, keep);
  const edited = [room.ydoc.getText("body"), room.ydoc.getArray("columns"), room.ydoc.getArray("rows")];
  const view = { config, peer, keep, room };

  // ---- who I am, and where
  const say = (cursor) => { room.presence.local = { client: room.ydoc.clientID, user: { name: peer.name, color: hue }, cursor }; };
  say(null);
  at("me").value = me;
  at("me").dataset.hue = hue;
  at("me").addEventListener("change", ({ target }) => {
    peer.name = target.value.trim().slice(0, LONGEST_NAME) || me;
    remember(localStorage, "name", peer.name);
    say(room.presence.local.cursor);
  });

  // ---- the text, the table
  const onHalf = () => notice("What you entered had half a character in it, which no document can hold: \ufffd stands in its place.");
  const text = new TextPane({ field: at("text"), mirror: at("mirror"), ytext: edited[0], onCursor: say, onHalf });
  const table = new Table({ table: at("table"), columns: edited[1], rows: edited[2], onCursor: say, onHalf });
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
  undoing(edited);

  // ---- what is shown of the rest
  const people = () => {
    const others = [...room.presence.others].map(([stream, { user, cursor }]) => ({ stream, name: nameOf(user), hue: hueOf(user, stream), cursor }));
    others.sort((a, b) => (a.name < b.name ? -1 : 1));
    return others;
  };
  let last = "";
  peer.onRoom = () => {
    showState(view);
    const here = people();
    const now = JSON.stringify(here, (_, item) => (item instanceof Uint8Array ? hex(item) : item));
    if (now === last) return;
    last = now;
    at("people").replaceChildren(...here.map(person));
    text.show(here.filter(({ cursor }) => cursor?.text === "body"));
    table.show(here.filter(({ cursor }) => cursor?.array === "rows"));
  };
  peer.onState = (state, why) => {
    showState(view);
    at("refused").hidden = state !== "refused";
    at("refused-why").textContent = state === "refused" ? `The peer says: ${why}.` : "";
    at("main").inert = state === "refused" && room.replica.versions.size === 0; // nothing to write in
    if (state === "refused") at("token").focus();
    if (state === "online") showDocuments(view, name);
  };
  at("refused").addEventListener("submit", (event) => {
    event.preventDefault();
    peer.token = at("token").value.trim();
    remember(sessionStorage, "token", peer.token);
    peer.retryNow();
  });
  let timer = null;
  const changed = () => {
    at("no-table").hidden = table.names.length > 0;
    at("add-row").disabled = table.names.length === 0;
    clearTimeout(timer);
    timer = setTimeout(() => { // what reads the whole document waits until nobody types
      at("count").textContent = counted(edited[0].toString());
      showDigest(room);
    }, QUIET);
  };
  room.ydoc.on("update", changed);
  // Others' edits change what a cursor's position means; and undoing may move it.
  room.ydoc.on("afterTransaction", () => { last = ""; peer.onRoom(room); });
  changed();
  if (keep) keep.onFailure = (error) => notice(`This browser does not keep what you write any more (${error.message}). Keep the page open until all is sent.`);

  addEventListener("online", () => peer.retryNow());
  addEventListener("offline", () => peer.disconnect("there is no network"));
  addEventListener("pagehide", () => {
    keep?.written();
    peer.stop();
  });
  addEventListener("pageshow", ({ persisted }) => persisted && peer.start());
  addEventListener("visibilitychange", () => keep?.written());
  addEventListener("beforeunload", (event) => {
    if (!keep && room.replica.own.length) event.preventDefault(); // it would be lost
  });
  peer.start();
}

// ---- configuration -------------------------------------------------------------------------------------------------

async function configuration() {
  const response = await fetch("config.json", { cache: "no-store" });
  if (!response.ok) throw new Error(`config.json: ${response.status}`);
  return response.json();
}

/** The address that was joined may have become another's; what is written here must not flow into its documents. */
async function sameStore({ store }) {
  let now;
  try {
    now = await configuration();
  } catch {
    return; // the web server may be away while the peer is there
  }
  if ((now.store ?? null) === (store ?? null)) return;
  throw Object.assign(new LinkLost("this address now serves other documents: reload the page to see them"), { final: true, code: "store" });
}

async function openKeep({ store }) {
  if (!store) return null; // nothing tells one store from the next
  try {
    return await Keep.open(indexedDB, store);
  } catch {
    return null; // a private window
  }
}

// ---- showing -------------------------------------------------------------------------------------------------------

function showState({ peer, keep, room }) {
  const words = {
    online: () => (room.refusal ? `The peer does not take this document: ${room.refusal.why}`
      : !room.replica.joined ? "Catching up" : room.replica.own.length ? "Sending" : room.isSaved ? "All changes saved" : "Up to date"),
    connecting: () => (room.replica.own.length ? "Offline, trying to connect" : "Connecting"),
    offline: () => (keep ? "Offline. What you write is kept here and sent later" : "Offline. Keep this page open: what you write is sent later"),
    refused: () => "Not let in",
  };
  const text = words[peer.state]();
  // A connection that is tried again and again is not announced each time: "offline" stays until it is there.
  const state = peer.state === "connecting" && at("state").dataset.state === "offline" ? "offline" : peer.state;
  const said = state === peer.state ? text : words.offline();
  if (at("state").dataset.state !== state) at("state").dataset.state = state;
  if (at("state-text").textContent !== said) at("state-text").textContent = said;
}

function showDocuments({ config, peer }, current) {
  const names = [...new Set([...config.documents, ...peer.home.documents, current])].sort();
  at("home").textContent = peer.home.name ? `Joined ${peer.home.name}` : "";
  at("picker").hidden = names.length < 2;
  at("documents").replaceChildren(...names.map((name) => new Option(name, name, name === current, name === current)));
  at("documents").onchange = ({ target }) => { location.hash = new URLSearchParams({ doc: target.value }); };
}

function showDigest(room) {
  const digest = room.replica.engine.digest();
  const text = digest ? hex(digest) : "";
  at("digest").replaceChildren("content ", Object.assign(document.createElement("code"), { textContent: text.slice(0, 12) }));
  at("digest").dataset.digest = text;
  at("digest").title = `${text}: equal wherever the content is`;
}

function person({ name, hue }) {
  const item = document.createElement("li");
  const swatch = Object.assign(document.createElement("span"), { className: "swatch" });
  swatch.dataset.hue = hue;
  swatch.setAttribute("aria-hidden", "true");
  item.append(swatch, Object.assign(document.createElement("span"), { textContent: name }));
  return item;
}

function nameOf(user) {
  const name = typeof user === "string" ? user : user?.name;
  return typeof name === "string" && name.trim() ? name.trim().slice(0, LONGEST_NAME) : "Somebody";
}

/** Of eight colours the one somebody chose, else one by its stream, so that all pages choose alike. */
function hueOf(user, stream) {
  const { color } = user ?? {};
  return Number.isInteger(color) && color >= 0 && color < HUES ? color : parseInt(stream.slice(0, 2), 16) % HUES;
}

function counted(text) {
  const words = text.split(/\s+/u).filter(Boolean).length;
  return `${words} ${words === 1 ? "word" : "words"}`;
}

function undoing(types) {
  const undo = new Y.UndoManager(types); // only what this page did: others' transactions have another origin
  const buttons = () => {
    at("undo").disabled = !undo.canUndo();
    at("redo").disabled = !undo.canRedo();
  };
  for (const event of ["stack-item-added", "stack-item-popped", "stack-cleared"]) undo.on(event, buttons);
  at("undo").addEventListener("click", () => undo.undo());
  at("redo").addEventListener("click", () => undo.redo());
  // The field's own undo knows nothing of what came from elsewhere.
  at("text").addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.altKey) return;
    const key = event.key.toLowerCase();
    if (key !== "z" && key !== "y") return;
    event.preventDefault();
    if (key === "y" || event.shiftKey) undo.redo();
    else undo.undo();
  });
}

function notice(text) {
  at("notice").textContent = text;
  at("notice").hidden = false;
}

function remember(storage, key, value) {
  try {
    storage.setItem(`nngkit-${key}`, value);
  } catch {
    // a browser that keeps nothing: then it is asked again
  }
}

function recall(storage, key) {
  try {
    return storage.getItem(`nngkit-${key}`);
  } catch {
    return null;
  }
}
