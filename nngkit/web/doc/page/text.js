// The text: a field bound to a Y.Text, and a mirror under it that shows where the others are.
//
//     const text = new TextPane({ field, mirror, ytext, onCursor, onHalf });
//     // onCursor(cursor or null) for presence; onHalf() after half a character was replaced
//     text.show(people);                                               // [{ name, hue, cursor }]

import * as Y from "yjs";
import { change, moved, parts, wellFormed } from "../strings.js";

const MOST = 32 * 1024; // UTF-16 units in one edit: a book that is pasted becomes many, each small enough for the BUS

export class TextPane {
  #field;
  #mirror;
  #ytext;
  #onCursor;
  #onHalf;
  #shown = ""; // what the field held when it was last in step
  #composing = false;
  #unseen = []; // deltas that came while something was composed
  #typing = false;
  #people = [];

  constructor({ field, mirror, ytext, onCursor, onHalf = () => {} }) {
    this.#field = field;
    this.#mirror = mirror;
    this.#ytext = ytext;
    this.#onCursor = onCursor;
    this.#onHalf = onHalf;
    ytext.observe((event) => this.#changed(event.delta));
    field.addEventListener("input", () => this.#composing || this.#typed());
    // An input method replaces what it has written again and again; until it is done the field is its own.
    field.addEventListener("compositionstart", () => { this.#composing = true; });
    field.addEventListener("compositionend", () => {
      this.#composing = false;
      this.#typed();
    });
    document.addEventListener("selectionchange", () => this.#moved());
    for (const event of ["focus", "blur"]) field.addEventListener(event, () => this.#moved());
    this.#render([]);
  }

  /** Where the others are. */
  show(people) {
    this.#people = people;
    this.#paint();
  }

  #typed() {
    this.#mend();
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

  /** What is no character cannot be in the document; the field then shows what the document has. */
  #mend() {
    const field = this.#field;
    const { value, selectionStart, selectionEnd, selectionDirection } = field;
    const whole = wellFormed(value);
    if (whole === value) return;
    field.value = whole;
    if (document.activeElement === field) field.setSelectionRange(selectionStart, selectionEnd, selectionDirection);
    this.#onHalf();
  }

  #changed(delta) {
    if (this.#typing) return;
    if (this.#composing) this.#unseen.push(delta);
    else this.#render([delta]);
  }

  /** Put the text into the field; the selection stays with its letters. */
  #render(deltas) {
    const field = this.#field;
    const { selectionStart, selectionEnd, selectionDirection } = field;
    const through = (position) => deltas.reduce((now, delta) => moved(now, delta, true), position);
    this.#shown = this.#ytext.toString();
    if (field.value !== this.#shown) {
      field.value = this.#shown;
      if (document.activeElement === field) field.setSelectionRange(through(selectionStart), through(selectionEnd), selectionDirection);
    }
    this.#paint();
  }

  #moved() {
    const field = this.#field;
    if (this.#composing) return;
    if (document.activeElement !== field) {
      this.#onCursor(null);
      return;
    }
    const [anchor, head] = field.selectionDirection === "backward" ? [field.selectionEnd, field.selectionStart] : [field.selectionStart, field.selectionEnd];
    const sticky = (index) => Y.encodeRelativePosition(Y.createRelativePositionFromTypeIndex(this.#ytext, index));
    this.#onCursor({ text: "body", anchor: sticky(anchor), head: sticky(head) });
  }

  /** The mirror: the text, with marks and carets between its letters. */
  #paint() {
    const length = this.#shown.length;
    const marks = []; // { at, make }
    const spans = []; // { from, to, hue }
    for (const { name, hue, cursor } of this.#people) {
      const [anchor, head] = [this.#index(cursor?.anchor), this.#index(cursor?.head)];
      if (anchor === null || head === null) continue;
      if (anchor !== head) spans.push({ from: Math.min(anchor, head), to: Math.max(anchor, head), hue });
      marks.push({ at: Math.min(head, length), name, hue });
    }
    const edges = new Set([0, length, ...marks.map(({ at }) => at), ...spans.flatMap(({ from, to }) => [Math.min(from, length), Math.min(to, length)])]);
    const sorted = [...edges].sort((a, b) => a - b);
    const nodes = [];
    sorted.forEach((edge, i) => {
      for (const { at, name, hue } of marks) if (at === edge) nodes.push(caret(name, hue));
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

function caret(name, hue) {
  const node = document.createElement("span");
  node.className = "caret";
  node.dataset.hue = hue;
  node.dataset.name = name;
  return node;
}
