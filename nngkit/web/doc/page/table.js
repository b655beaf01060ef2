// The table: the array "columns" of names and the array "rows" of maps from name to value, as a <table> of fields.
//
// A cell is one value: the last write wins. Rows are maps of their own, so they keep their cells when they move.
//
// Remote edits do not disturb typing: rows and cells that stay keep their elements.
//
//     const table = new Table({ table, columns, rows, scroll, onCursor, onHalf });
//     // onCursor(cursor or null) for presence; onHalf() after an incomplete character was replaced
//     table.show(people);                                                  // [{ name, hue, cursor }]

import * as Y from "yjs";
import { wellFormed } from "../strings.js";

const PAUSE = 200; // ms after the last key until a cell is written: every write stays in the document's history

export class Table {
  #table;
  #columns;
  #rows;
  #scroll;
  #onCursor;
  #onHalf;
  #heads = new Map(); // column -> its cell in the head
  #lines = new Map(); // row -> { row, line, cells: Map from column to field, drop }
  #order = []; // the rows as last shown
  #people = [];

  constructor({ table, columns, rows, scroll, onCursor, onHalf }) {
    [this.#table, this.#columns, this.#rows, this.#scroll] = [table, columns, rows, scroll];
    [this.#onCursor, this.#onHalf] = [onCursor, onHalf];
    columns.observeDeep(() => this.#render());
    rows.observeDeep(() => this.#render());
    table.addEventListener("focusin", ({ target }) => target.matches("td input") && this.#here(target));
    table.addEventListener("focusout", ({ target }) => document.activeElement === target || onCursor(null));
    table.addEventListener("keydown", (event) => this.#key(event));
    this.#render();
  }

  /** The columns, in order, then other keys of the rows: Python may write rows without naming columns. */
  get names() {
    const names = new Set(this.#columns.toArray().filter((name) => typeof name === "string"));
    const more = new Set();
    for (const row of this.#rows.toArray()) for (const key of keys(row)) if (!names.has(key)) more.add(key);
    return [...names, ...[...more].sort()];
  }

  #mended(text) {
    const whole = wellFormed(text);
    if (whole !== text) this.#onHalf();
    return whole;
  }

  addColumn(text) {
    const name = this.#mended(text);
    if (name && !this.names.includes(name)) this.#columns.push([name]);
  }

  addRow() {
    const row = new Y.Map();
    this.#rows.push([row]);
    const line = this.#lines.get(row);
    line?.cells.values().next().value?.focus();
  }

  show(people) {
    this.#people = people;
    this.#paint();
  }

  #removeColumn(name) {
    this.#columns.doc.transact(() => {
      const at = this.#columns.toArray().indexOf(name);
      if (at >= 0) this.#columns.delete(at);
      this.#rows.forEach((row) => row instanceof Y.Map && row.has(name) && row.delete(name));
    });
  }

  #write(row, column, text) {
    if (text === shown(value(row, column))) return;
    const rows = this.#rows;
    const at = rows.toArray().indexOf(row);
    if (at < 0) return; // removed by another peer meanwhile
    rows.doc.transact(() => {
      const current = value(row, column);
      if (current instanceof Y.Text) {
        current.delete(0, current.length);
        current.insert(0, text);
      } else if (row instanceof Y.Map) row.set(column, read(text));
      else { // a plain object: it can only be replaced
        rows.delete(at);
        rows.insert(at, [new Y.Map([...keys(row).map((key) => [key, row[key]]), [column, read(text)]])]);
      }
    });
  }

  #render() {
    const { activeElement } = document;
    const field = this.#table.contains(activeElement) && activeElement.matches("input") ? activeElement : null;
    const selection = field && [field.selectionStart, field.selectionEnd, field.selectionDirection];
    let followed = false;
    this.#scroll.hold(() => { followed = this.#draw(); }, undefined, { ofTable: true });
    if (field && !field.isConnected) this.#onCursor(null); // its row or column is gone
    else if (field && document.activeElement !== field) { // it was moved
      field.focus({ preventScroll: true });
      field.setSelectionRange(...selection);
    } else if (field && followed) this.#here(field);
    this.#paint();
  }

  /** Draw the table; return true if a line now shows another row. */
  #draw() {
    const names = this.names;
    const rows = this.#rows.toArray();
    const followed = this.#follow(rows);
    this.#drawHead(names);
    const present = new Set(rows);
    for (const row of this.#lines.keys()) if (!present.has(row)) this.#lines.delete(row);
    const entries = rows.map((row) => this.#entry(row));
    arrange(this.#table.tBodies[0], entries.map(({ line }) => line));
    entries.forEach((entry, i) => this.#drawRow(entry, names, i + 1));
    return followed;
  }

  /** Keep the line of a row that was a plain object and became a map when it was edited. */
  #follow(rows) {
    let followed = false;
    if (rows.length === this.#order.length) {
      const present = new Set(rows);
      this.#order.forEach((was, i) => {
        const entry = this.#lines.get(was);
        if (!entry || present.has(was) || this.#lines.has(rows[i])) return;
        this.#lines.delete(was);
        entry.row = rows[i];
        this.#lines.set(rows[i], entry);
        followed = true;
      });
    }
    this.#order = rows;
    return followed;
  }

  #drawHead(names) {
    const wanted = new Set(names);
    for (const name of this.#heads.keys()) if (!wanted.has(name)) this.#heads.delete(name);
    for (const name of names) if (!this.#heads.has(name)) this.#heads.set(name, this.#head(name));
    const head = this.#table.tHead;
    const line = head.rows[0] ?? head.insertRow();
    const side = line.querySelector(".side") ?? heading("side", element("span", { className: "unseen", textContent: "Remove" }));
    arrange(line, names.length ? [...names.map((name) => this.#heads.get(name)), side] : []);
  }

  #head(name) {
    const cap = element("span", { className: "cap" });
    cap.append(element("span", { textContent: name }), button("Remove column " + name, () => this.#removeColumn(name)));
    return heading("", cap);
  }

  #drawRow(entry, names, number) {
    const { row, line, cells, drop } = entry;
    const wanted = new Set(names);
    for (const name of cells.keys()) if (!wanted.has(name)) cells.delete(name);
    for (const name of names) if (!cells.has(name)) cells.set(name, this.#field(entry, name));
    arrange(line, [...names.map((name) => cells.get(name).parentElement), drop.parentElement]);
    for (const name of names) {
      const field = cells.get(name);
      const current = value(row, name);
      field.setAttribute("aria-label", `${name}, row ${number}`);
      field.readOnly = current instanceof Y.AbstractType && !(current instanceof Y.Text);
      if (!field.dataset.dirty && field.value !== shown(current)) field.value = shown(current);
    }
    drop.setAttribute("aria-label", `Remove row ${number}`);
    drop.title = `Remove row ${number}`;
  }

  #entry(row) {
    const known = this.#lines.get(row);
    if (known) return known;
    const side = element("td", { className: "side" });
    const entry = { row, line: document.createElement("tr"), cells: new Map(), drop: null };
    entry.drop = button("Remove row", () => {
      const at = this.#rows.toArray().indexOf(entry.row);
      if (at >= 0) this.#rows.delete(at);
    });
    side.append(entry.drop);
    this.#lines.set(row, entry);
    return entry;
  }

  #field(entry, column) {
    const field = element("input", { autocomplete: "off" });
    document.createElement("td").append(field);
    let timer = null;
    const write = () => {
      clearTimeout(timer);
      if (!field.dataset.dirty) return;
      delete field.dataset.dirty; // until here, no other peer's value replaces the one being typed
      const text = this.#mended(field.value);
      if (text !== field.value) field.value = text;
      this.#write(entry.row, column, text);
    };
    field.addEventListener("input", () => {
      field.dataset.dirty = "1";
      clearTimeout(timer);
      timer = setTimeout(write, PAUSE);
    });
    field.addEventListener("change", write);
    field.addEventListener("blur", write);
    return field;
  }

  #key(event) {
    const line = event.target.closest("tbody tr");
    const step = { Enter: event.shiftKey ? -1 : 1, ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!line || !step || event.isComposing || !event.target.matches("input")) return;
    const next = step > 0 ? line.nextElementSibling : line.previousElementSibling;
    const column = event.target.parentElement.cellIndex;
    event.preventDefault();
    if (next) next.cells[column].firstChild.focus();
    else if (event.key === "Enter") event.target.blur();
  }

  #here(field) {
    for (const { row, cells } of this.#lines.values()) {
      for (const [column, one] of cells) {
        if (one !== field) continue;
        const at = this.#rows.toArray().indexOf(row);
        this.#onCursor({ array: "rows", row: Y.encodeRelativePosition(Y.createRelativePositionFromTypeIndex(this.#rows, at)), column });
      }
    }
  }

  #paint() {
    for (const cell of this.#table.querySelectorAll("td[data-here]")) {
      delete cell.dataset.here;
      delete cell.dataset.hue;
    }
    for (const { name, hue, cursor } of this.#people) {
      const cell = this.#cell(cursor);
      if (cell) Object.assign(cell.dataset, { here: name, hue });
    }
  }

  #cell(cursor) {
    if (!(cursor?.row instanceof Uint8Array)) return null;
    try {
      const found = Y.createAbsolutePositionFromRelativePosition(Y.decodeRelativePosition(cursor.row), this.#rows.doc);
      if (found?.type !== this.#rows) return null;
      return this.#lines.get(this.#rows.get(found.index))?.cells.get(cursor.column)?.parentElement ?? null;
    } catch {
      return null;
    }
  }
}

const keys = (row) => (row instanceof Y.Map ? [...row.keys()] : row && typeof row === "object" && !Array.isArray(row) ? Object.keys(row) : []);
const value = (row, column) => (row instanceof Y.Map ? row.get(column) : keys(row).includes(column) ? row[column] : undefined);

function shown(cell) {
  if (cell === undefined || cell === null) return "";
  if (cell instanceof Y.AbstractType) return cell instanceof Y.Text ? cell.toString() : JSON.stringify(cell.toJSON());
  return typeof cell === "object" ? JSON.stringify(cell) : String(cell);
}

/** Return the value of a cell's text: a number if the text is its exact form, else the text. */
function read(text) {
  const number = Number(text);
  return text !== "" && Number.isFinite(number) && String(number) === text ? number : text;
}

/**
 * Make `nodes` the children of `parent`, in this order. A node that is there already is moved only if necessary: moving it
 * would lose its focus and a composition in progress.
 */
function arrange(parent, nodes) {
  const wanted = new Set(nodes);
  for (const node of [...parent.children]) if (!wanted.has(node)) node.remove();
  let next = parent.firstElementChild;
  for (const node of nodes) {
    if (node === next) next = next.nextElementSibling;
    else parent.insertBefore(node, next);
  }
}

function heading(className, content) {
  const cell = element("th", { className, scope: "col" });
  cell.append(content);
  return cell;
}

function element(tag, properties) {
  return Object.assign(document.createElement(tag), properties);
}

function button(label, act) {
  const node = element("button", { type: "button", className: "drop", textContent: "×" });
  node.setAttribute("aria-label", label);
  node.title = label;
  node.addEventListener("click", act);
  return node;
}
