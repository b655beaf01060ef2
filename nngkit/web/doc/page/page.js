// The elements of the page by their ids, its one line for what went wrong, and what the browser remembers.

export const at = (id) => document.getElementById(id);

export function notice(text) {
  at("notice").textContent = text;
  at("notice").hidden = false;
}

export function remember(storage, key, value) {
  try {
    storage.setItem(`nngkit-${key}`, value);
  } catch {
    // a browser that keeps nothing: then it is asked again
  }
}

export function recall(storage, key) {
  try {
    return storage.getItem(`nngkit-${key}`);
  } catch {
    return null;
  }
}
