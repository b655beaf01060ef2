// Tables of any rows, and the tree of a cluster.

import { $, make, say, shown, whole } from "./dom.js";

const ROWS = 500; // drawn
const NODES = 1000; // drawn

function keep(rows, parts) {
  for (const part of parts) {
    for (const key of part.gone || []) rows.delete(key);
    for (const [key, row] of Object.entries(part.set || {})) rows.set(key, row);
  }
}

function about(parts) {
  const found = parts.findLast((part) => part.about);
  if (!found) return null;
  return [found.about.error, found.about.cut ? "more than are shown here" : ""].filter(Boolean).join("; ");
}

/** A table, or a list of names and values if there is one row without a key. */
export class AnyTable {
  constructor(name, summary) {
    this.rows = new Map();
    this.lines = new Map();
    this.columns = [];
    this.section = make("section");
    const title = make("h2", name[0].toUpperCase() + name.slice(1).replaceAll("_", " "));
    title.id = `table-${name.replaceAll(/[^a-z0-9]/gi, "-")}`;
    this.section.setAttribute("aria-labelledby", title.id);
    this.about = make("p", "", "wrong");
    this.about.hidden = true;
    this.body = make("div", "", "wide");
    this.body.tabIndex = 0;
    this.body.setAttribute("role", "region");
    this.body.setAttribute("aria-labelledby", title.id);
    this.more = make("p", "nothing yet", "quiet");
    this.section.append(title, make("p", summary, "quiet"), this.about, this.body, this.more);
    $("others").append(this.section);
  }

  changed(parts) {
    keep(this.rows, parts);
    const wrong = about(parts);
    if (wrong !== null) {
      say(this.about, wrong);
      this.about.hidden = !wrong;
    }
    const single = this.rows.get("");
    if (single && this.rows.size === 1) this.drawValue(single);
    else this.drawRows();
    const over = this.rows.size - ROWS;
    say(this.more, over > 0 ? `and ${whole(over)} more` : this.rows.size ? "" : "nothing yet");
    this.more.hidden = !this.more.textContent;
  }

  drawValue(row) {
    const list = make("dl");
    for (const [name, value] of Object.entries(row)) list.append(make("dt", name.replaceAll("_", " ")), make("dd", shown(value, name)));
    this.body.replaceChildren(list);
  }

  drawRows() {
    const keys = [...this.rows.keys()].slice(0, ROWS);
    const columns = keys.length ? Object.keys(this.rows.get(keys[0])) : [];
    if (columns.join() !== this.columns.join()) {
      this.columns = columns;
      this.lines.clear();
      this.table = make("table");
      const head = make("tr");
      for (const column of columns) {
        const cell = make("th", column.replaceAll("_", " "));
        cell.scope = "col";
        head.append(cell);
      }
      const top = make("thead");
      top.append(head);
      this.lineBody = make("tbody");
      this.table.append(top, this.lineBody);
      this.body.replaceChildren(...(columns.length ? [this.table] : []));
    }
    const wanted = new Set(keys);
    for (const [key, line] of this.lines) {
      if (!wanted.has(key)) {
        line.remove();
        this.lines.delete(key);
      }
    }
    for (const key of keys) {
      const row = this.rows.get(key);
      let line = this.lines.get(key);
      if (!line) {
        line = make("tr");
        line.append(...columns.map(() => make("td")));
        this.lines.set(key, line);
        this.lineBody.append(line);
      }
      if (line.row === row) continue;
      line.row = row;
      columns.forEach((column, at) => {
        const cell = line.children[at];
        cell.className = typeof row[column] === "number" ? "number" : "";
        say(cell, shown(row[column], column));
      });
    }
  }
}

export class Members {
  clear() {
    this.rows = new Map();
    $("tree").replaceChildren();
  }

  changed(parts) {
    keep(this.rows, parts);
    const wrong = about(parts);
    const over = this.rows.size > NODES ? `${whole(this.rows.size)} nodes, of which ${whole(NODES)} are shown` : "";
    say(document.querySelector("#members .about"), wrong || over);
    const children = new Map();
    for (const row of this.rows.values()) {
      if (!children.has(row.parent)) children.set(row.parent, []);
      children.get(row.parent).push(row);
    }
    for (const rows of children.values()) rows.sort((one, other) => (one.id < other.id ? -1 : 1));
    let room = NODES;
    const root = document.createDocumentFragment();
    const stack = (children.get("") || []).map((row) => [row, root]).reverse(); // a chain may be deeper than the stack of JavaScript
    while (stack.length && room--) {
      const [row, place] = stack.pop();
      const item = make("li");
      const slots = row.slots ? `, ${whole(row.slots)} slots: ${shown(row.kinds)}` : "";
      const roles = [row.parent === "" ? "host" : "", row.voter ? "voter" : ""].filter(Boolean).join(", ");
      item.append(make("strong", row.id), make("span", `${roles ? ` (${roles})` : ""}${row.address ? ` ${row.address}` : ""}${slots}`));
      place.append(item);
      const below = children.get(row.id) || [];
      if (!below.length) continue;
      const list = make("ul");
      item.append(list);
      for (const each of below.toReversed()) stack.push([each, list]);
    }
    $("tree").replaceChildren(root);
  }
}
