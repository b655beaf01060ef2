// Elements and values as text. Names come from the network: they are text nodes, never HTML.

export const $ = (id) => document.getElementById(id);

export function make(tag, text = "", name = "") {
  const element = document.createElement(tag);
  if (text !== "") element.textContent = text;
  if (name) element.className = name;
  return element;
}

/** Set the text of an element, unless it has it: the browser lays out again what is written. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const whole = (number) => number.toLocaleString("en");

export function time(seconds) {
  const date = new Date(seconds * 1000);
  const today = date.toDateString() === new Date().toDateString();
  const clock = date.toLocaleTimeString("en-GB");
  return today ? clock : `${date.toISOString().slice(0, 10)} ${clock}`;
}

/** Return a duration in seconds with its unit. */
export function duration(seconds) {
  if (seconds >= 1) return `${seconds.toFixed(2)} s`;
  return seconds >= 0.001 ? `${(seconds * 1000).toFixed(1)} ms` : `${(seconds * 1e6).toFixed(0)} µs`;
}

const SECONDS = new Set(["p50", "p99", "mean", "took"]);

/** Return a value of a table as text. */
export function shown(value, column = "") {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return SECONDS.has(column) ? duration(value) : whole(value);
  if (typeof value === "string") return value;
  if (Array.isArray(value)) return value.map((each) => shown(each)).join(", ") || "–";
  return Object.entries(value).map(([key, each]) => `${key}: ${shown(each, key)}`).join(", ") || "–";
}
