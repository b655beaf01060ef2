// The table: the array "columns" of names and the array "rows" of maps from name to value, as a <table> of fields.
//
// A cell is one value: who writes it last has it. Rows are maps of their own, so they keep their cells wherever they move.
//
//     const table = new Table({ table, columns, rows, onCursor, onHalf });
//     // onCursor(cursor or null) for presence; onHalf() after half a character was replaced
//     table.show(people);                                            // [{ name, hue, cursor }]

import * as Y from "yjs";
import { wellFormed } from "../strings.js";

const PAUSE = 200; // ms after the last key until a cell is written: each writing stays in the document's history

export class Table {
  #head;
  #body;
  #columns;
  #rows;
  #onCursor;
  #onHalf;
  #lines = new Map(); // row -> { line, cells: Map from column to field }
  #people = [];

  constructor({ table, columns, rows, onCursor, onHalf = () => {} }) {
    [this.#head, this.#body] = [table.tHead, table.tBodies[0]];
    [this.#columns, this.#rows, this.#onCursor, this.#onHalf] = [columns, rows, onCursor, onHalf];
    columns.observeDeep(() => this.#render());
    rows.observeDeep(() => this.#render());
    table.addEventListener("focusin", ({ target }) => target.matches("td input") && this.#here(target));
    table.addEventListener("focusout", () => onCursor(null));
    table.addEventListener("keydown", (event) => this.#key(event));
    this.#render();
  }

  /** The columns, in order; then what rows have besides, as Python may write rows without naming columns. */
  get names() {
    const names = new Set(this.#columns.toArray().filter((name) => typeof name === "string"));
    const more = new Set();
    for (const row of this.#rows.toArray()) for (const key of keys(row)) if (!names.has(key)) more.add(key);
    return [...names, ...[...more].sort()];
  }

  addColumn(typed) {
    const name = this.#mended(typed);
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

  /** What is no character cannot be in the document. */
  #mended(text) {
    const whole = wellFormed(text);
    if (whole !== text) this.#onHalf();
    return whole;
  }

  #write(row, column, text) {
    if (text === shown(value(row, column))) return;
    const rows = this.#rows;
    const at = rows.toArray().indexOf(row);
    if (at < 0) return; // somebody has removed it meanwhile
    rows.doc.transact(() => {
      const current = value(row, column);
      if (current instanceof Y.Text) {
        current.delete(0, current.length);
        current.insert(0, text);
      } else if (row instanceof Y.Map) row.set(column, read(text));
      else { // a plain object: it cannot be edited in part
        rows.delete(at);
        rows.insert(at, [new Y.Map([...keys(row).map((key) => [key, row[key]]), [column, read(text)]])]);
      }
    });
  }

  #render() {
    const names = this.names;
    this.#renderHead(names);
    const rows = this.#rows.toArray();
    for (const [row, { line }] of this.#lines) {
      if (rows.includes(row)) continue;
      line.remove();
      this.#lines.delete(row);
    }
    rows.forEach((row, i) => {
      const entry = this.#line(row, names);
      if (this.#body.rows[i] !== entry.line) this.#body.insertBefore(entry.line, this.#body.rows[i] ?? null);
      names.forEach((name) => {
        const field = entry.cells.get(name);
        const text = shown(value(row, name));
        field.setAttribute("aria-label", `${name}, row ${i + 1}`);
        if (!field.dataset.dirty && field.value !== text) field.value = text;
      });
      entry.line.querySelector(".drop").setAttribute("aria-label", `Remove row ${i + 1}`);
    });
    this.#paint();
  }

  #renderHead(names) {
    if (this.#head.dataset.names === JSON.stringify(names)) return;
    this.#head.dataset.names = JSON.stringify(names);
    const line = document.createElement("tr");
    for (const name of names) {
      const cell = element("th", { scope: "col" });
      const cap = element("span", { className: "cap" });
      cap.append(element("span", { textContent: name }), button("Remove column " + name, () => this.#removeColumn(name)));
      cell.append(cap);
      line.append(cell);
    }
    if (names.length) line.append(element("th", { className: "side", scope: "col", textContent: "" }));
    this.#head.replaceChildren(line);
    for (const { line: old } of this.#lines.values()) old.remove();
    this.#lines.clear(); // their cells are other columns' now
  }

  #line(row, names) {
    const known = this.#lines.get(row);
    if (known) return known;
    const line = document.createElement("tr");
    const cells = new Map();
    for (const name of names) {
      const cell = document.createElement("td");
      const field = element("input", { autocomplete: "off" });
      const current = value(row, name);
      if (current instanceof Y.AbstractType && !(current instanceof Y.Text)) field.readOnly = true;
      this.#listen(field, row, name);
      cells.set(name, field);
      cell.append(field);
      line.append(cell);
    }
    const side = element("td", { className: "side" });
    side.append(button("Remove row", () => {
      const at = this.#rows.toArray().indexOf(row);
      if (at >= 0) this.#rows.delete(at);
    }));
    line.append(side);
    const entry = { line, cells };
    this.#lines.set(row, entry);
    return entry;
  }

  #listen(field, row, column) {
    let timer = null;
    const write = () => {
      clearTimeout(timer);
      if (!field.dataset.dirty) return;
      delete field.dataset.dirty; // until here nobody else's value is put under the writer's hands
      const text = this.#mended(field.value);
      if (field.value !== text) field.value = text;
      this.#write(row, column, text);
    };
    field.addEventListener("input", () => {
      field.dataset.dirty = "1";
      clearTimeout(timer);
      timer = setTimeout(write, PAUSE);
    });
    field.addEventListener("change", write);
    field.addEventListener("blur", write);
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
    for (const [row, { cells }] of this.#lines) {
      for (const [column, one] of cells) {
        if (one !== field) continue;
        const at = this.#rows.toArray().indexOf(row);
        this.#onCursor({ array: "rows", row: Y.encodeRelativePosition(Y.createRelativePositionFromTypeIndex(this.#rows, at)), column });
      }
    }
  }

  #paint() {
    for (const cell of this.#body.querySelectorAll("td[data-here]")) {
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

/** What a cell's text means: a number where the number is written just so, else the text. */
function read(text) {
  const number = Number(text);
  return text !== "" && Number.isFinite(number) && String(number) === text ? number : text;
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
