// Services as tiles, each with a dot for each provider, by zone and priority. Those of one page have tiles, as a browser
// takes a second to lay out ten thousand of them; only tiles whose rows have changed are drawn again.

import { $, make, say, time, whole } from "./dom.js";

const MARKS = { up: "●", stale: "◍", joining: "○", suspect: "◐", draining: "◇", down: "✕" };
const STATES = Object.keys(MARKS);
const DOTS = 40; // of a group; more are a number
const GROUPS = 6; // of a tile
const ROWS = 200; // of the dialog
const PAGE = 240; // tiles: whole lines of 1 to 6 columns

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
    $("previous").addEventListener("click", () => this.turn(-PAGE));
    $("next").addEventListener("click", () => this.turn(PAGE));
    $("tiles").addEventListener("keydown", (event) => this.key(event));
    $("tiles").addEventListener("click", (event) => {
      const tile = event.target.closest("li");
      if (tile) this.open(tile.service);
    });
    $("tiles").addEventListener("focusin", (event) => this.stop(event.target.closest("li").service));
    $("close").addEventListener("click", () => $("detail").close());
    $("detail").addEventListener("close", () => { this.opened = null; });
  }

  clear() {
    this.services = new Map(); // name: {name, small, rows, tile, up, count, found}
    this.names = new Map(); // of the keys of rows
    this.order = []; // services, sorted by name, unless `unsorted`
    this.unsorted = false;
    this.found = []; // those of them that the filter admits
    this.first = 0; // place in `found` of the first tile
    this.up = this.total = 0;
    this.current = null; // the service whose tile Tab goes to
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
          service = { name: row.name, small: row.name.toLowerCase(), rows: new Map(), tile: null, up: 0, count: 0, found: false };
          this.services.set(row.name, service);
          this.unsorted = true;
        }
        this.names.set(key, row.name);
        service.rows.set(key, row);
        dirty.add(service);
      }
    }
    for (const service of dirty) this.count(service);
    if (this.unsorted) this.sort();
    else if ([...dirty].some((service) => service.found !== this.admits(service))) this.sift();
    for (const service of dirty) if (service.tile) this.draw(service);
    if (dirty.has(this.opened)) this.fill();
    say($("total"), `${whole(this.order.length)} services, ${whole(this.up)} of ${whole(this.total)} providers up`);
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

  count(service) {
    this.up -= service.up;
    this.total -= service.count;
    service.count = service.rows.size;
    service.up = 0;
    for (const row of service.rows.values()) if (row.state === "up") service.up += 1;
    this.up += service.up;
    this.total += service.count;
    if (service.count) return;
    this.services.delete(service.name);
    this.unsorted = true;
  }

  // Which tiles there are

  admits(service) {
    return service.count > 0 && service.small.includes(this.wanted || "") && !($("troubled").checked && service.up === service.count);
  }

  sort() {
    this.unsorted = false;
    this.order = [...this.services.values()].sort((one, other) => (one.name < other.name ? -1 : 1));
    this.sift();
  }

  sift() {
    for (const service of this.found) service.found = false;
    this.found = this.order.filter((service) => this.admits(service));
    for (const service of this.found) service.found = true;
    this.place();
  }

  /** Have the tiles of a page of those found, in their order. `goal`: where the focus goes. */
  place(goal = null) {
    const pages = Math.max(0, Math.ceil(this.found.length / PAGE) - 1);
    this.first = Math.max(0, Math.min(this.first, pages * PAGE));
    const page = this.found.slice(this.first, this.first + PAGE);
    const tiles = $("tiles");
    const focused = document.activeElement.closest("#tiles li");
    const at = focused ? [...tiles.children].indexOf(focused) : 0;
    const kept = new Set(page);
    for (const tile of [...tiles.children]) {
      if (kept.has(tile.service)) continue;
      tile.service.tile = null;
      tile.remove();
    }
    let next = tiles.firstChild;
    for (const service of page) {
      if (!service.tile) this.add(service);
      if (service.tile === next) next = next.nextSibling;
      else tiles.insertBefore(service.tile, next);
    }
    if (!kept.has(this.current)) this.stop(goal || page[Math.min(at, page.length - 1)] || null);
    if (focused && !focused.isConnected) this.current?.tile.firstChild.focus();
    $("pager").hidden = this.found.length <= PAGE;
    $("previous").disabled = this.first === 0;
    $("next").disabled = this.first + PAGE >= this.found.length;
    say($("range"), this.range());
  }

  range() {
    return `${whole(this.first + 1)} to ${whole(Math.min(this.first + PAGE, this.found.length))} of ${whole(this.found.length)}`;
  }

  turn(step) {
    this.first += step;
    this.place();
    $("tiles").scrollTop = 0;
    say($("announce"), `Services ${this.range()}`);
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
    this.draw(service);
  }

  draw(service) {
    const tile = service.tile;
    tile.dataset.up = service.up === service.count ? "all" : service.up ? "some" : "none";
    say(tile.count, `${whole(service.up)} of ${whole(service.count)} up`);
    const all = groups(service.rows.values());
    const lines = all.slice(0, GROUPS).map(drawGroup);
    if (all.length > GROUPS) lines.push(make("span", `and ${whole(all.length - GROUPS)} more zones and priorities`, "label"));
    tile.groups.replaceChildren(...lines);
  }

  // Keyboard: Tab goes to one tile, arrow keys to the others, also of another page

  stop(service) {
    if (service === this.current) return;
    if (this.current?.tile) this.current.tile.firstChild.tabIndex = -1;
    this.current = service;
    if (service) service.tile.firstChild.tabIndex = 0;
  }

  key(event) {
    const columns = getComputedStyle($("tiles")).gridTemplateColumns.split(" ").length;
    const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -Infinity, End: Infinity };
    const step = steps[event.key];
    if (step === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const at = Math.max(0, Math.min(this.found.length - 1, this.found.indexOf(this.current) + step));
    const service = this.found[at];
    if (!service) return;
    if (!service.tile) {
      this.first = at - (at % PAGE);
      this.place(service);
    }
    service.tile.firstChild.focus();
  }

  filter() {
    this.wanted = $("filter").value.toLowerCase();
    this.first = 0;
    this.sift();
    say($("announce"), `${whole(this.found.length)} services found`);
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
