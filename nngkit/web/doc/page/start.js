// The first screen: the documents there are, and a name for a new one. It is shown where the address names no document,
// or one that there cannot be.
//
//     const start = new Start({ list, empty, form, field, why });
//     start.show(["minutes"]);       // names; `start.complain(name, why)` says what is wrong with the address

import { wellFormed } from "../strings.js";
import { wrong } from "../names.js";

export class Start {
  #list;
  #empty;
  #field;
  #why;
  #names = null;

  constructor({ list, empty, form, field, why }) {
    [this.#list, this.#empty, this.#field, this.#why] = [list, empty, field, why];
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const name = wellFormed(field.value.trim());
      const problem = wrong(name);
      if (problem) this.complain(name, problem);
      else location.hash = addressOf(name);
    });
    field.addEventListener("input", () => this.#say(""));
  }

  show(names) {
    if (String(this.#names) === String(names)) return; // a link that somebody is about to press stays
    this.#names = names;
    this.#empty.hidden = names.length > 0;
    this.#list.replaceChildren(...names.map((name) => {
      const item = document.createElement("li");
      item.append(Object.assign(document.createElement("a"), { href: `#${addressOf(name)}`, textContent: name }));
      return item;
    }));
  }

  /** Why there can be no document of this name. */
  complain(name, why) {
    this.#say(`There can be no document called “${name}”: it ${why}. Choose one of the list, or another name.`);
    this.#field.setAttribute("aria-invalid", "true");
  }

  #say(text) {
    this.#field.removeAttribute("aria-invalid");
    this.#why.textContent = text;
    this.#why.hidden = !text;
  }
}

const addressOf = (name) => String(new URLSearchParams({ doc: name }));
