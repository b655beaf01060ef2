// The ribbon of changes, and the pulse of surveys.

import { $, make, duration, say, time, whole } from "./dom.js";

const SPOKEN = 3; // changes that are announced in full
const QUIET = 3000; // milliseconds between two announcements

export class Changes {
  clear(began) {
    this.items = new Map();
    this.began = began; // what changed before is not announced
    this.news = [];
    $("ribbon").replaceChildren();
  }

  changed(parts) {
    for (const part of parts) {
      for (const key of part.gone || []) {
        this.items.get(key)?.remove();
        this.items.delete(key);
      }
      for (const [key, row] of Object.entries(part.set || {})) {
        const item = make("li", "", row.state);
        const stamp = make("time", time(row.at));
        stamp.dateTime = new Date(row.at * 1000).toISOString();
        const states = row.was === row.state || row.was === "joining" ? row.state : `${row.was} → ${row.state}`;
        item.append(stamp, make("strong", row.name), make("span", `${states}: ${row.reason}`), make("small", row.address));
        this.items.set(key, item);
        $("ribbon").prepend(item);
        if (row.at > this.began) this.announce(`${row.name} at ${row.address} is ${row.state}: ${row.reason}`);
      }
      if (part.about) say(document.querySelector("#changes .about"), part.about.error || "");
    }
  }

  announce(text) {
    this.news.push(text);
    if (this.news.length > 1) return;
    setTimeout(() => {
      const more = this.news.length - SPOKEN;
      const told = this.news.slice(0, SPOKEN).join(". ");
      $("announce").textContent = more > 0 ? `${told}. And ${whole(more)} more changes.` : `${told}.`;
      this.news = [];
    }, $("announce").textContent ? QUIET : 100);
  }
}

export class Rounds {
  clear() {
    this.rows = new Map();
    $("pulse").replaceChildren();
  }

  changed(parts) {
    for (const part of parts) {
      for (const key of part.gone || []) this.rows.delete(key);
      for (const [key, row] of Object.entries(part.set || {})) this.rows.set(key, row);
    }
    const rows = [...this.rows.values()].sort((one, other) => one.number - other.number);
    if (!rows.length) return;
    const longest = Math.max(...rows.map((row) => row.took), 0.001);
    const bars = $("pulse");
    while (bars.childElementCount < rows.length) bars.append(make("span"));
    while (bars.childElementCount > rows.length) bars.lastChild.remove();
    rows.forEach((row, at) => {
      const bar = bars.children[at];
      bar.style.height = `${Math.max(6, (100 * row.took) / longest)}%`;
      bar.className = row.missed ? "missed" : row.held ? "held" : "";
    });
    const last = rows.at(-1);
    const missed = rows.filter((row) => row.missed).length;
    say($("last-round"), `Last survey, number ${whole(last.number)}: ${whole(last.asked)} asked, ${whole(last.answered)} answered, ` +
      `${whole(last.missed)} missed, ${duration(last.took)}.${missed ? ` In ${missed} of the last ${rows.length} some have missed.` : ""}`);
    bars.setAttribute("aria-label", `The last ${rows.length} surveys took up to ${duration(longest)}; in ${missed} some have missed.`);
  }
}
