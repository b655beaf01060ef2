// What is read stays where it is on the screen while lines come in above it: the page is scrolled by as much.
//
// Browsers do this by themselves for some changes and not for others, and none can for a field; so style.css turns theirs
// off. What is held is the caret, or the cell that is edited, if it is in sight; else the first line in sight.
//
//     const view = new View({ field, mirror, table, top: () => bar.getBoundingClientRect().bottom });
//     view.hold(() => field.value = ..., (index, stays) => moved(index, delta, stays));

const SEARCHED = 4; // characters, of which one has a place: a line break at the end of a wrapped line may have none

export class View {
  #field;
  #mirror;
  #table;
  #top;

  constructor({ field, mirror, table, top }) {
    [this.#field, this.#mirror, this.#table, this.#top] = [field, mirror, table, top];
  }

  /** Do `change`, to the text or (`ofTable`) to the table. `through`: where a position of the text is after it. */
  hold(change, through = (index) => index, { ofTable = false } = {}) {
    const place = this.#active(through) ?? (ofTable ? this.#row() ?? this.#line(through) : this.#line(through) ?? this.#row());
    change();
    const after = place?.after() ?? null;
    if (after !== null && after !== place.before) scrollBy({ top: after - place.before, behavior: "instant" });
  }

  /** Where the person writes, if that is in sight: { before, after() }, from the top of the window. */
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

  /** The first line of the text in sight, if there are lines above it. */
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

  /** The first row in sight, if the table begins above it. */
  #row() {
    if (topOf(this.#table) >= this.#top()) return null;
    const row = [...this.#table.rows].find((one) => one.getBoundingClientRect().bottom > this.#top());
    return row ? element(row) : null;
  }
}

const topOf = (node) => node.getBoundingClientRect().top;
const element = (node) => ({ before: topOf(node), after: () => (node.isConnected ? topOf(node) : null) });

/** The upper end of the character at `index`, from the top of the window; null where nothing is. */
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
