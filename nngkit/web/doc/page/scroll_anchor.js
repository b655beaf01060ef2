// Keeps the visible text in place while lines are inserted above it, by scrolling the page by the same amount.
//
// Browsers do this for some changes and not for others, and never for a field; so style.css turns it off. The anchor is the
// caret or the edited cell if it is visible, else the first visible line.
//
//     const scroll = new ScrollAnchor({ field, mirror, table, top: () => bar.getBoundingClientRect().bottom });
//     scroll.hold(() => field.value = ..., (index, stays) => moved(index, delta, stays));

const SEARCHED = 4; // characters searched for one with a box: a line break at the end of a wrapped line may have none

export class ScrollAnchor {
  #field;
  #mirror;
  #table;
  #top;

  constructor({ field, mirror, table, top }) {
    [this.#field, this.#mirror, this.#table, this.#top] = [field, mirror, table, top];
  }

  /** Run `change`, of the text or (`ofTable`) of the table. `through`: maps a position of the text to the one after it. */
  hold(change, through = (index) => index, { ofTable = false } = {}) {
    const place = this.#active(through) ?? (ofTable ? this.#row() ?? this.#line(through) : this.#line(through) ?? this.#row());
    change();
    const after = place?.after() ?? null;
    if (after !== null && after !== place.before) scrollBy({ top: after - place.before, behavior: "instant" });
  }

  /** Return the place of the active caret or cell, if visible: { before, after() }, from the top of the window. */
  #active(through) {
    const active = document.activeElement;
    const inSight = (y) => y !== null && y >= this.#top() && y < innerHeight;
    if (active === this.#field) {
      const index = active.selectionEnd;
      const before = lineTop(this.#mirror, index);
      return inSight(before) ? { before, after: () => lineTop(this.#mirror, through(index, true)) } : null;
    }
    return this.#table.contains(active) && inSight(topOf(active)) ? element(active) : null;
  }

  /** Return the first visible line of the text, if there are lines above it. */
  #line(through) {
    const { top, bottom } = this.#mirror.getBoundingClientRect();
    if (top >= this.#top() || bottom <= this.#top()) return null;
    let [low, high] = [0, this.#mirror.textContent.length - 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((lineTop(this.#mirror, middle) ?? -Infinity) >= this.#top()) high = middle;
      else low = middle + 1;
    }
    const before = lineTop(this.#mirror, low);
    return before === null ? null : { before, after: () => lineTop(this.#mirror, through(low, false)) };
  }

  /** Return the first visible row, if the table begins above it. */
  #row() {
    if (topOf(this.#table) >= this.#top()) return null;
    const row = [...this.#table.rows].find((one) => one.getBoundingClientRect().bottom > this.#top());
    return row ? element(row) : null;
  }
}

const topOf = (node) => node.getBoundingClientRect().top;
const element = (node) => ({ before: topOf(node), after: () => (node.isConnected ? topOf(node) : null) });

/** Return the top of the character at `index`, from the top of the window; null without one. */
function lineTop(mirror, index) {
  const walker = document.createTreeWalker(mirror, NodeFilter.SHOW_TEXT);
  const range = document.createRange();
  let left = SEARCHED;
  while (walker.nextNode() && left > 0) {
    const { length } = walker.currentNode.data;
    for (; index < length && left > 0; index++, left--) {
      range.setStart(walker.currentNode, index);
      range.setEnd(walker.currentNode, index + 1);
      const [box] = range.getClientRects();
      if (box) return box.top;
    }
    index -= length;
  }
  return null;
}
