// The start screen: the list of documents, and a field for a new name. Shown if the address names no document, or an invalid
// name.
//
//     const start = new Start({ list, empty, form, field, why });
//     start.show(["minutes"]);       // names; `start.complain(name, why)` explains an invalid name

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
    field.addEventListener("input", () => this.#showFault(""));
  }

  show(names) {
    if (String(this.#names) === String(names)) return; // keeps a link that is about to be pressed
    this.#names = names;
    this.#empty.hidden = names.length > 0;
    this.#list.replaceChildren(...names.map((name) => {
      const item = document.createElement("li");
      item.append(Object.assign(document.createElement("a"), { href: `#${addressOf(name)}`, textContent: name }));
      return item;
    }));
  }

  /** Explain why `name` is invalid. */
  complain(name, why) {
    this.#showFault(`“${name}” is not a valid document name: it ${why}. Choose a document from the list, or another name.`);
    this.#field.setAttribute("aria-invalid", "true");
  }

  #showFault(text) {
    this.#field.removeAttribute("aria-invalid");
    this.#why.textContent = text;
    this.#why.hidden = !text;
  }
}

const addressOf = (name) => String(new URLSearchParams({ doc: name }));
