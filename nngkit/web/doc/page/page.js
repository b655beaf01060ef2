// Elements of the page by id, its notice line, and the browser's storage.

export const at = (id) => document.getElementById(id);

export function notice(text) {
  at("notice").textContent = text;
  at("notice").hidden = false;
}

export function remember(storage, key, value) {
  try {
    storage.setItem(`nngkit-${key}`, value);
  } catch {
    // a browser that stores nothing: the page asks again next time
  }
}

export function recall(storage, key) {
  try {
    return storage.getItem(`nngkit-${key}`);
  } catch {
    return null;
  }
}
