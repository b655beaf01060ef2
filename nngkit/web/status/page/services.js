// Services as tiles, each with a dot for each instance, by zone and priority. Only tiles whose rows have changed are
// drawn again; those out of sight are not laid out (content-visibility in style.css).

import { $, make, say, time, whole } from "./dom.js";

const MARKS = { up: "●", stale: "◍", joining: "○", suspect: "◐", draining: "◇", down: "✕" };
const STATES = Object.keys(MARKS);
const DOTS = 40; // of a group; more are a number
const GROUPS = 6; // of a tile
const ROWS = 200; // of the dialog

const stateOf = (row) => (row.state === "up" && row.stale ? "stale" : row.state);

function groups(rows) {
  const found = new Map();
  for (const row of rows) {
    const key = `${row.zone}\n${String(row.priority).padStart(2, "0")}`;
    if (!found.has(key)) found.set(key, { zone: row.zone, priority: row.priority, counts: {} });
    const counts = found.get(key).counts;
    counts[stateOf(row)] = (counts[stateOf(row)] || 0) + 1;
  }
  return [...found.keys()].sort().map((key) => found.get(key));
}

function drawGroup(group) {
  const line = make("span", "", "group");
  line.append(make("span", `${group.zone || "no zone"} · ${group.priority}`, "label"));
  let room = DOTS;
  let more = 0;
  for (const state of STATES) {
    const count = group.counts[state] || 0;
    const drawn = Math.min(count, room);
    room -= drawn;
    more += count - drawn;
    if (drawn) line.append(make("span", MARKS[state].repeat(drawn), `dots ${state}`));
  }
  if (more) line.append(make("span", `+${whole(more)}`, "label"));
  return line;
}

export class Services {
  constructor() {
    this.picks = new Map();
    this.clear();
    $("filter").addEventListener("input", () => this.filter());
    $("troubled").addEventListener("change", () => this.filter());
    $("tiles").addEventListener("keydown", (event) => this.key(event));
    $("tiles").addEventListener("click", (event) => {
      const tile = event.target.closest("li");
      if (tile) this.open(tile.service);
    });
    $("tiles").addEventListener("focusin", (event) => this.stop(event.target.closest("li")));
    $("close").addEventListener("click", () => $("detail").close());
    $("detail").addEventListener("close", () => { this.opened = null; });
  }

  clear() {
    this.services = new Map(); // name: {name, rows, tile, up}
    this.names = new Map(); // of the keys of rows
    this.order = []; // names that have a tile, sorted
    this.up = this.total = 0;
    this.current = null; // the tile that Tab goes to
    this.opened = null;
    this.picks.clear();
    $("tiles").replaceChildren();
  }

  changed(parts) {
    const dirty = new Set();
    for (const part of parts) {
      for (const key of part.gone || []) {
        const service = this.services.get(this.names.get(key));
        this.names.delete(key);
        if (service && service.rows.delete(key)) dirty.add(service);
      }
      for (const [key, row] of Object.entries(part.set || {})) {
        let service = this.services.get(row.name);
        if (!service) {
          service = { name: row.name, rows: new Map(), tile: null, up: 0, count: 0 };
          this.services.set(row.name, service);
        }
        this.names.set(key, row.name);
        service.rows.set(key, row);
        dirty.add(service);
      }
    }
    for (const service of dirty) this.draw(service);
    if (dirty.has(this.opened)) this.fill();
    say($("total"), `${whole(this.order.length)} services, ${whole(this.up)} of ${whole(this.total)} instances up`);
    $("none").hidden = this.order.length > 0;
    $("hint").hidden = this.order.length === 0;
  }

  picked(parts) {
    for (const part of parts) {
      for (const key of part.gone || []) this.picks.delete(key);
      for (const [key, row] of Object.entries(part.set || {})) this.picks.set(key, row);
    }
    if (this.opened) this.fill();
  }

  draw(service) {
    this.up -= service.up;
    this.total -= service.count;
    const rows = [...service.rows.values()];
    service.count = rows.length;
    service.up = rows.filter((row) => row.state === "up").length;
    this.up += service.up;
    this.total += service.count;
    if (!rows.length) {
      this.remove(service);
      return;
    }
    if (!service.tile) this.add(service);
    const tile = service.tile;
    tile.dataset.up = service.up === service.count ? "all" : service.up ? "some" : "none";
    say(tile.count, `${whole(service.up)} of ${whole(service.count)} up`);
    const all = groups(rows);
    const lines = all.slice(0, GROUPS).map(drawGroup);
    if (all.length > GROUPS) lines.push(make("span", `and ${whole(all.length - GROUPS)} more zones and priorities`, "label"));
    tile.groups.replaceChildren(...lines);
    this.sift(tile);
  }

  place(name) {
    let low = 0;
    let high = this.order.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.order[middle] < name) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  add(service) {
    const tile = make("li");
    const button = make("button");
    button.type = "button";
    button.tabIndex = -1;
    tile.count = make("span", "", "count");
    button.append(make("span", service.name, "service"), " ", tile.count);
    tile.groups = make("div", "", "groups");
    tile.groups.setAttribute("aria-hidden", "true");
    tile.append(button, tile.groups);
    tile.service = service;
    service.tile = tile;
    const place = this.place(service.name);
    const next = this.services.get(this.order[place]);
    this.order.splice(place, 0, service.name);
    $("tiles").insertBefore(tile, next ? next.tile : null);
    if (!this.current) this.stop(tile);
  }

  remove(service) {
    this.services.delete(service.name);
    if (!service.tile) return;
    this.order.splice(this.place(service.name), 1);
    const next = service.tile.nextElementSibling || service.tile.previousElementSibling;
    const focused = service.tile.contains(document.activeElement);
    service.tile.remove();
    if (this.current === service.tile) {
      this.current = null;
      if (next) this.stop(next);
      if (next && focused) next.firstChild.focus();
    }
  }

  // Keyboard: Tab goes to one tile, arrow keys to the others

  stop(tile) {
    if (!tile || tile === this.current) return;
    if (this.current) this.current.firstChild.tabIndex = -1;
    this.current = tile;
    tile.firstChild.tabIndex = 0;
  }

  key(event) {
    const columns = getComputedStyle($("tiles")).gridTemplateColumns.split(" ").length;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const tiles = [...$("tiles").children].filter((tile) => !tile.hidden);
    const at = tiles.indexOf(this.current) + step;
    const tile = tiles[Math.max(0, Math.min(tiles.length - 1, at))];
    if (tile) tile.firstChild.focus();
  }

  // Filter

  sift(tile) {
    const hides = !tile.service.name.toLowerCase().includes(this.wanted || "");
    const hidden = hides || ($("troubled").checked && tile.dataset.up === "all");
    if (tile.hidden !== hidden) tile.hidden = hidden;
  }

  filter() {
    this.wanted = $("filter").value.toLowerCase();
    for (const tile of $("tiles").children) this.sift(tile);
    if (this.current && this.current.hidden) {
      this.stop([...$("tiles").children].find((tile) => !tile.hidden));
    }
  }

  // One service

  open(service) {
    this.opened = service;
    this.fill();
    $("detail").showModal();
  }

  fill() {
    const service = this.opened;
    say($("detail-title"), service.name);
    say($("pick"), choice(this.picks.get(service.name)));
    const rows = [...service.rows.values()].sort((one, other) =>
      STATES.indexOf(stateOf(one)) - STATES.indexOf(stateOf(other)) || one.priority - other.priority ||
      (one.zone < other.zone ? -1 : Number(one.zone > other.zone)) || (one.address < other.address ? -1 : 1));
    $("instances").replaceChildren(...rows.slice(0, ROWS).map((row) => {
      const line = make("tr");
      const state = make("td");
      state.append(make("span", MARKS[stateOf(row)], stateOf(row)), ` ${row.state}${row.stale ? ", silent with most others" : ""}`);
      line.append(state);
      const cells = [row.address, row.zone, row.priority, row.weight, row.version, time(row.since), row.reason];
      line.append(...cells.map((cell) => make("td", String(cell))));
      return line;
    }));
    say($("more"), rows.length > ROWS ? `and ${whole(rows.length - ROWS)} more` : "");
  }
}

function choice(pick) {
  if (!pick || !pick.of) return "resolve finds no provider.";
  const which = pick.address || `one of ${whole(pick.of)}, at random by weight`;
  const state = pick.suspect ? ", although suspect" : pick.stale ? ", although silent in the last survey" : "";
  return `A caller that prefers no zone gets ${which} (priority ${pick.priority}${state}).`;
}
