// The people in a document: a few names, "+N" for the rest, and all of them when that is pressed.
//
//     const people = new People({ list, more });     // <ul>, <button>
//     people.show([{ name, hue }]);

const MOST = 6; // names in the bar
const MOST_NARROW = 2; // on a phone

export class People {
  #list;
  #more;
  #narrow = matchMedia("(max-width: 40rem)");
  #people = [];
  #all = false;

  constructor({ list, more }) {
    [this.#list, this.#more] = [list, more];
    more.addEventListener("click", () => {
      this.#all = !this.#all;
      this.#render();
    });
    this.#narrow.addEventListener("change", () => this.#render());
  }

  show(people) {
    this.#people = people;
    this.#render();
  }

  #render() {
    const most = this.#narrow.matches ? MOST_NARROW : MOST;
    const over = Math.max(0, this.#people.length - most);
    this.#list.replaceChildren(...this.#people.slice(0, this.#all ? undefined : most).map(person));
    this.#list.classList.toggle("all", this.#all && over > 0);
    this.#more.hidden = over === 0;
    this.#more.textContent = this.#all ? "Fewer" : `+${over}`;
    this.#more.setAttribute("aria-label", this.#all ? "Fewer people" : `+${over} more people`);
    this.#more.setAttribute("aria-expanded", String(this.#all));
  }
}

function person({ name, hue }) {
  const item = document.createElement("li");
  const swatch = Object.assign(document.createElement("span"), { className: "swatch" });
  swatch.dataset.hue = hue;
  swatch.setAttribute("aria-hidden", "true");
  item.append(swatch, Object.assign(document.createElement("span"), { textContent: name }));
  item.title = name;
  return item;
}
