// The page: reads its configuration and key, joins, and shows a document or the list of documents.
//
// The key (a token, or a guest's pass) is in the fragment of the address, which is never sent to a server. It is removed from the address bar at once
// and kept for this tab only. The fragment's `doc` is the document to open: `#token=...&doc=minutes`.

import { readPass } from "../guest.js";
import { OfflineStore } from "../offline_store.js";
import { LinkLost } from "../link.js";
import { wrong } from "../names.js";
import { Peer, freshStream } from "../peer.js";
import { LONGEST_NAME, showDocument } from "./document.js";
import { fault } from "./faults.js";
import { at, notice, recall, remember } from "./page.js";
import { sharing } from "./share.js";
import { Start } from "./start.js";

const random = () => crypto.getRandomValues(new Uint32Array(1))[0] / 2 ** 32;

const fragment = new URLSearchParams(location.hash.slice(1));
if (fragment.has("token") || fragment.has("pass")) {
  for (const secret of ["token", "pass"]) {
    remember(sessionStorage, secret, fragment.get(secret) ?? "");
    fragment.delete(secret);
  }
  history.replaceState(null, "", `${location.pathname}${location.search}${String(fragment) ? `#${fragment}` : ""}`);
}
addEventListener("hashchange", () => location.reload()); // another document, or another key
at("reload").addEventListener("click", () => location.reload());

main().catch((error) => notice(`This page could not start: ${error.message}. Reload it to try again.`));

async function main() {
  const config = await configuration();
  const name = fragment.get("doc");
  const problem = name === null ? null : wrong(name);
  const guest = readPass(recall(sessionStorage, "pass"));
  // A stream belongs to one name: each guest has edits of its own in this browser.
  const own = guest && config.store ? { ...config, store: `${config.store} ${guest.name}` } : config;
  const keep = name === null || problem ? null : await openKeep(own);
  const stream = keep ? await keep.stream((before) => freshStream(random, Date.now(), before)) : freshStream(random, Date.now());
  const nameKey = guest ? `name of ${guest.name}` : "name";
  const me = recall(localStorage, nameKey) ?? (guest ? guest.name.replace(/^guest\./, "") : `Guest ${1 + Math.floor(random() * 99)}`);
  const peer = new Peer({
    addresses: config.repair, token: recall(sessionStorage, "token"), guest, name: me.slice(0, LONGEST_NAME), store: config.store, host: location.hostname, WebSocket, random,
    stream, beforeJoining: () => sameStore(config),
  });
  sharing({ button: at("copy"), row: at("link-row"), field: at("link"), link: () => {
    const secrets = new URLSearchParams([["token", peer.token], ["doc", problem ? null : name]].filter(([, value]) => value));
    return `${location.origin}${location.pathname}${String(secrets) ? `#${secrets}` : ""}`;
  } });
  at("copy").hidden = guest !== null; // the pass in the link is of one person
  const view = { config, peer, keep, nameKey, room: null, stopped: null };
  if (name === null || problem) showStart(view, name, problem);
  else {
    view.room = await peer.open(name, keep);
    const update = showDocument(view, name, random);
    peer.onRoom = (room) => {
      showState(view);
      update(room);
    };
  }
  peer.onState = (state, why, code) => {
    view.stopped = state === "refused" ? fault(code, why, { kept: keep !== null }) : null;
    showState(view);
    if (state === "online") at("home").textContent = peer.home.name ? `Joined ${peer.home.name}` : "";
    if (state === "online") view.onOnline?.();
  };
  at("refused").addEventListener("submit", (event) => {
    event.preventDefault();
    peer.token = at("token").value.trim();
    remember(sessionStorage, "token", peer.token);
    peer.retryNow();
  });
  addEventListener("online", () => peer.retryNow());
  addEventListener("offline", () => peer.disconnect("there is no network"));
  addEventListener("pagehide", () => {
    keep?.written();
    peer.stop();
  });
  addEventListener("pageshow", ({ persisted }) => persisted && peer.start());
  peer.start();
}

// ---- configuration -------------------------------------------------------------------------------------------------

async function configuration() {
  const response = await fetch("config.json", { cache: "no-store" });
  if (!response.ok) throw new Error(`config.json: ${response.status}`);
  return response.json();
}

/** Check the store: another peer may have taken over this address, and edits made here must not reach its documents. */
async function sameStore({ store }) {
  let now;
  try {
    now = await configuration();
  } catch {
    return !store; // the web server may be down while the peer is up: then a store must be verified first
  }
  if ((now.store ?? null) === (store ?? null)) return true;
  throw Object.assign(new LinkLost("this address now serves other documents"), { final: true, code: "store" });
}

async function openKeep({ store }) {
  if (!store) return null; // without it, stores cannot be told apart
  try {
    return await OfflineStore.open(indexedDB, store);
  } catch {
    return null; // a private window
  }
}

// ---- showing -------------------------------------------------------------------------------------------------------

function showStart(view, name, problem) {
  const { config, peer } = view;
  const start = new Start({ list: at("list"), empty: at("no-documents"), form: at("new"), field: at("new-name"), why: at("new-why") });
  const list = (more) => start.show([...new Set([...config.documents, ...more])].sort());
  list([]);
  if (problem) start.complain(name, problem);
  view.onOnline = () => list(peer.home.documents);
  at("start").hidden = false;
}

function showState(view) {
  const { peer, keep, room } = view;
  const unsent = room !== null && room.replica.own.length > 0;
  const stopped = view.stopped ?? (room?.refusal?.code === "unknown-document" ? fault("unknown-document", room.refusal.why, {}) : null);
  const lost = room?.replica.refusal;
  if (lost && at("notice").dataset.why !== lost.why) {
    at("notice").dataset.why = lost.why; // said once
    notice(`Your last changes cannot be saved: ${lost.why}. Nor can what follows them: copy what you need, and enter it in another way.`);
  }
  const words = {
    online: () => (room === null ? "Connected" : lost ? "Not saved" : room.refusal ? `The peer refuses this document: ${room.refusal.why}`
      : !room.replica.joined ? "Synchronizing" : unsent ? "Sending" : room.isSaved ? "All changes saved" : "Up to date"),
    connecting: () => (unsent ? "Offline, trying to connect" : "Connecting"),
    offline: () => (room === null ? "Offline, trying to connect"
      : keep ? "Offline. Your changes are stored here and sent later" : "Offline. Keep this page open: your changes are sent later"),
    refused: () => stopped.short,
  };
  // Retries are not announced one by one: "offline" stays until the page is connected.
  const state = stopped || (lost && peer.state === "online") ? "refused" : peer.state === "connecting" && at("state").dataset.state === "offline" ? "offline" : peer.state;
  const text = words[stopped ? "refused" : lost ? "online" : state]();
  if (at("state").dataset.state !== state) at("state").dataset.state = state;
  if (at("state-text").textContent !== text) at("state-text").textContent = text;
  showFault(view, stopped);
}

/** Show a fault, and disable input that would be lost. */
function showFault(view, stopped) {
  const title = stopped?.title ?? "";
  if (at("refused").dataset.title === title) return;
  at("refused").dataset.title = title;
  at("refused").hidden = !stopped;
  at("start").inert = Boolean(stopped);
  const bare = Boolean(stopped) && view.room?.replica.versions.size === 0;
  const frozen = Boolean(stopped) && !stopped.key; // readable and copyable; another key would make it editable again
  at("main").inert = bare;
  at("text").readOnly = frozen;
  for (const id of ["table", "add-row", "add-column"]) at(id).inert = frozen;
  for (const id of ["undo", "redo"]) at(id).inert = bare || frozen;
  if (!stopped) return;
  at("refused-title").textContent = title;
  at("refused-why").textContent = stopped.what;
  for (const [part, shown] of [["key", stopped.key], ["list", stopped.list], ["reload", stopped.reload]]) at(`refused-${part}`).hidden = !shown;
  if (stopped.key) at("token").focus();
}
