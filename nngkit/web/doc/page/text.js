// The text: a field bound to a Y.Text, and a mirror under it that shows where the others are.
//
//     const text = new TextPane({ field, mirror, ytext, view, onCursor, onHalf });
//     // onCursor(cursor or null) for presence; onHalf() after half a character was replaced
//     text.show(people);                                                   // [{ stream, name, hue, cursor }]

import * as Y from "yjs";
import { awaitsHalf, change, moved, parts, wellFormed } from "../strings.js";
import { hex } from "../versions.js";

const MOST = 32 * 1024; // UTF-16 units in one edit: a book that is pasted becomes many, each small enough for the BUS
const HALF = 100; // ms for the second half of a character to come as an input of its own

export class TextPane {
  #field;
  #mirror;
  #ytext;
  #view;
  #onCursor;
  #onHalf;
  #shown = ""; // what the field held when it was last in step
  #composing = false;
  #half = null; // the timer of half a character
  #unseen = []; // deltas that came while something was composed
  #typing = false;
  #people = [];
  #places = new Map(); // stream -> { head, since }: carets, and since when each is where it is

  constructor({ field, mirror, ytext, view, onCursor, onHalf }) {
    this.#field = field;
    this.#mirror = mirror;
    this.#ytext = ytext;
    this.#view = view;
    this.#onCursor = onCursor;
    this.#onHalf = onHalf;
    ytext.observe((event) => this.#changed(event.delta));
    field.addEventListener("input", () => {
      if (this.#composing) return;
      if (awaitsHalf(field.value, field.selectionEnd)) this.#half ??= setTimeout(() => this.#typed(), HALF);
      else this.#typed();
    });
    // An input method replaces what it has written again and again; until it is done the field is its own.
    field.addEventListener("compositionstart", () => { this.#composing = true; });
    field.addEventListener("compositionend", () => {
      this.#composing = false;
      this.#typed();
    });
    // The document hears of every field's selection; those of the table's are not for here.
    document.addEventListener("selectionchange", () => this.#moved());
    field.addEventListener("focus", () => this.#moved());
    // Where the whole window loses the focus the field is still the active one: its caret stays where it is.
    field.addEventListener("blur", () => document.activeElement === field || onCursor(null));
    this.#render([]);
  }

  /** Where the others are. */
  show(people) {
    this.#people = people;
    const here = new Set(people.map(({ stream }) => stream));
    for (const stream of this.#places.keys()) if (!here.has(stream)) this.#places.delete(stream);
    this.#paint();
  }

  #typed() {
    clearTimeout(this.#half);
    this.#half = null;
    this.#repair();
    const { value, selectionEnd } = this.#field;
    const { at, removed, inserted } = change(this.#shown, value, selectionEnd);
    const unseen = this.#unseen.splice(0);
    const through = (position, stays) => unseen.reduce((now, delta) => moved(now, delta, stays), position);
    this.#shown = value;
    if (removed || inserted) {
      const from = through(at, false);
      const to = Math.max(from, through(at + removed, true));
      const [first = "", ...rest] = parts(inserted, MOST);
      this.#typing = unseen.length === 0; // else the field has to be set all the same
      this.#ytext.doc.transact(() => {
        if (to > from) this.#ytext.delete(from, to - from);
        if (first) this.#ytext.insert(from, first);
      });
      let end = from + first.length;
      for (const part of rest) {
        this.#ytext.insert(end, part);
        end += part.length;
      }
      this.#typing = false;
    }
    if (unseen.length) this.#render(unseen);
    else this.#paint();
    this.#moved();
  }

  /** Half a character would be half a character here and U+FFFD to everybody else. */
  #repair() {
    const field = this.#field;
    const { selectionStart, selectionEnd } = field;
    const whole = wellFormed(field.value); // as long as it was
    if (whole === field.value) return;
    field.value = whole;
    if (document.activeElement === field) field.setSelectionRange(selectionStart, selectionEnd);
    this.#onHalf();
  }

  #changed(delta) {
    if (this.#typing) return;
    if (this.#composing || this.#half !== null) this.#unseen.push(delta);
    else this.#render([delta]);
  }

  /** Put the text into the field; the selection stays with its letters, and what is read where it is. */
  #render(deltas) {
    const field = this.#field;
    const { selectionStart, selectionEnd, selectionDirection } = field;
    const through = (position, stays) => deltas.reduce((now, delta) => moved(now, delta, stays), position);
    this.#view.hold(() => {
      this.#shown = this.#ytext.toString();
      this.#paint(); // first: it makes room for the field
      if (field.value === this.#shown) return;
      field.value = this.#shown;
      if (document.activeElement !== field) return;
      field.setSelectionRange(through(selectionStart, true), through(selectionEnd, true), selectionDirection);
    }, through);
  }

  #moved() {
    const field = this.#field;
    if (this.#composing || this.#half !== null || document.activeElement !== field) return;
    const [anchor, head] = field.selectionDirection === "backward" ? [field.selectionEnd, field.selectionStart] : [field.selectionStart, field.selectionEnd];
    const sticky = (index) => Y.encodeRelativePosition(Y.createRelativePositionFromTypeIndex(this.#ytext, index));
    this.#onCursor({ text: "body", anchor: sticky(anchor), head: sticky(head) });
  }

  /** The mirror: the text, with marks and carets between its letters. */
  #paint() {
    const length = this.#shown.length;
    const marks = []; // { at, make }
    const spans = []; // { from, to, hue }
    for (const { stream, name, hue, cursor } of this.#people) {
      const [anchor, head] = [this.#index(cursor?.anchor), this.#index(cursor?.head)];
      if (anchor === null || head === null) continue;
      if (anchor !== head) spans.push({ from: Math.min(anchor, head), to: Math.max(anchor, head), hue });
      marks.push({ at: Math.min(head, length), name, hue, age: this.#age(stream, cursor.head) });
    }
    const edges = new Set([0, length, ...marks.map(({ at }) => at), ...spans.flatMap(({ from, to }) => [Math.min(from, length), Math.min(to, length)])]);
    const sorted = [...edges].sort((a, b) => a - b);
    const nodes = [];
    sorted.forEach((edge, i) => {
      for (const mark of marks) if (mark.at === edge) nodes.push(caret(mark));
      const piece = this.#shown.slice(edge, sorted[i + 1] ?? edge);
      if (!piece) return;
      const span = spans.find(({ from, to }) => from <= edge && edge < to);
      const node = span ? document.createElement("mark") : document.createTextNode(piece);
      if (span) {
        node.dataset.hue = span.hue;
        node.textContent = piece;
      }
      nodes.push(node);
    });
    this.#mirror.replaceChildren(...nodes, "\n"); // a field shows the empty line at its end; a block would not
  }

  /** Milliseconds for which somebody's caret has stood beside the same letter. */
  #age(stream, bytes) {
    const [head, now] = [hex(bytes), performance.now()];
    const place = this.#places.get(stream);
    if (place?.head === head) return now - place.since;
    this.#places.set(stream, { head, since: now });
    return 0;
  }

  #index(bytes) {
    if (!(bytes instanceof Uint8Array)) return null;
    try {
      const found = Y.createAbsolutePositionFromRelativePosition(Y.decodeRelativePosition(bytes), this.#ytext.doc);
      return found?.type === this.#ytext ? found.index : null;
    } catch {
      return null; // not a position, or of what has not come yet
    }
  }
}

function caret({ name, hue, age }) {
  const node = document.createElement("span");
  node.className = "caret";
  node.style.setProperty("--age", `${Math.round(age)}ms`); // its name has been fading for so long
  node.dataset.hue = hue;
  node.dataset.name = name;
  return node;
}
