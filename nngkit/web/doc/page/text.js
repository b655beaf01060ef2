// The text: a field bound to a Y.Text, and a mirror under it that shows the cursors of the others.
//
//     const text = new TextPane({ field, mirror, ytext, scroll, onCursor, onHalf });
//     // onCursor(cursor or null) for presence; onHalf() after an incomplete character was replaced
//     text.show(people);                                                   // [{ stream, name, hue, cursor }]

import * as Y from "yjs";
import { awaitsHalf, change, moved, parts, wellFormed } from "../strings.js";
import { hex } from "../versions.js";

const MOST = 32 * 1024; // UTF-16 units in one edit: a long paste becomes several edits, each small enough for the BUS
const HALF = 100; // ms to wait for the second half of a character, as an input of its own

export class TextPane {
  #field;
  #mirror;
  #ytext;
  #scroll;
  #onCursor;
  #onHalf;
  #shown = ""; // the field's value when it was last in sync
  #composing = false;
  #half = null; // timer while half a character is in the field
  #unseen = []; // deltas received during a composition
  #typing = false;
  #people = [];
  #places = new Map(); // stream -> { head, since }: position of each caret, and the time it arrived there

  constructor({ field, mirror, ytext, scroll, onCursor, onHalf }) {
    this.#field = field;
    this.#mirror = mirror;
    this.#ytext = ytext;
    this.#scroll = scroll;
    this.#onCursor = onCursor;
    this.#onHalf = onHalf;
    ytext.observe((event) => this.#changed(event.delta));
    field.addEventListener("input", () => {
      if (this.#composing) return;
      if (awaitsHalf(field.value, field.selectionEnd)) this.#half ??= setTimeout(() => this.#typed(), HALF);
      else this.#typed();
    });
    // An input method replaces its text repeatedly; until it is done the field is left alone.
    field.addEventListener("compositionstart", () => { this.#composing = true; });
    field.addEventListener("compositionend", () => {
      this.#composing = false;
      this.#typed();
    });
    // The document gets the selection changes of every field; those of the table are ignored here.
    document.addEventListener("selectionchange", () => this.#moved());
    field.addEventListener("focus", () => this.#moved());
    // When the window loses the focus, the field stays the active element and the caret stays.
    field.addEventListener("blur", () => document.activeElement === field || onCursor(null));
    this.#render([]);
  }

  /** Show the cursors of the others. */
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
      this.#typing = unseen.length === 0; // else the field has to be updated as well
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

  /** Replace half characters, which other peers would get as U+FFFD. */
  #repair() {
    const field = this.#field;
    const { selectionStart, selectionEnd } = field;
    const whole = wellFormed(field.value); // of the same length
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

  /** Update the field; the selection stays at its letters, and the scroll position too. */
  #render(deltas) {
    const field = this.#field;
    const { selectionStart, selectionEnd, selectionDirection } = field;
    const through = (position, stays) => deltas.reduce((now, delta) => moved(now, delta, stays), position);
    this.#scroll.hold(() => {
      this.#shown = this.#ytext.toString();
      this.#paint(); // first: it gives the field its height
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

  /** Draw the mirror: the text, with marks and carets between its letters. */
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
    this.#mirror.replaceChildren(...nodes, "\n"); // a field shows the empty line at its end; a block does not
  }

  /** Return for how many milliseconds a caret has stood at the same letter. */
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
      return null; // invalid, or its text has not arrived yet
    }
  }
}

function caret({ name, hue, age }) {
  const node = document.createElement("span");
  node.className = "caret";
  node.style.setProperty("--age", `${Math.round(age)}ms`); // time for which its name has been fading
  node.dataset.hue = hue;
  node.dataset.name = name;
  return node;
}
