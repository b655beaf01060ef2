// Offline store of a page: documents and this page's edits, in IndexedDB, until the peer has them.
//
// The database belongs to one store of one peer (`identity`): the same address may serve other documents tomorrow, and
// edits kept for one document must not reach another of the same name. Two tabs may keep the same document: rows are only
// added, and merged in one transaction.
//
//     const keep = await OfflineStore.open(indexedDB, identity);
//     const { update, versions, own } = await keep.load("minutes", merge);
//     keep.applied("minutes", update, brought);  keep.own("minutes", records, true);  await keep.written();

const ROWS = "rows"; // { doc, update, versions }: a document is the merge of its rows
const OWN = "own"; // [doc, stream, seq] -> update: edits made here that may not have arrived
const STREAM = "stream"; // the last stream: its origin stays with this database, its epoch is new at each load
const PAUSE = 50; // ms during which writes are collected for one transaction
const NOTHING = 2; // bytes of an empty update: no clients, no deletions
const MANY = 200; // rows of a document above which loading merges them

export class OfflineStore {
  #database;
  #queue = []; // (transaction) => void
  #timer = null;
  #last = Promise.resolve();
  onFailure = () => {}; // (error): the disk is full, or the browser reclaims its space

  constructor(database) { this.#database = database; }

  /** Open the database. Rejects if the browser stores nothing, in a private window for example. */
  static async open(indexedDB, identity) {
    const opening = indexedDB.open(`nngkit-doc-${identity}`, 1);
    opening.onupgradeneeded = () => {
      opening.result.createObjectStore(ROWS, { autoIncrement: true }).createIndex("doc", "doc");
      opening.result.createObjectStore(OWN);
      opening.result.createObjectStore(STREAM);
    };
    return new OfflineStore(await finished(opening));
  }

  /** Replace the stored stream by `next(stored stream or null)`; return the new one. */
  async stream(next) {
    const store = this.#database.transaction(STREAM, "readwrite").objectStore(STREAM);
    const stream = next((await finished(store.get(0))) ?? null);
    await finished(store.put(stream, 0));
    return stream;
  }

  /** Load { update, versions, own }; `merge` merges a list of updates into one. */
  async load(doc, merge) {
    const transaction = this.#database.transaction([ROWS, OWN], "readwrite");
    const rows = transaction.objectStore(ROWS);
    const [keys, values] = await Promise.all([finished(rows.index("doc").getAllKeys(doc)), finished(rows.index("doc").getAll(doc))]);
    const versions = new Map();
    for (const row of values) for (const [stream, seq] of row.versions) versions.set(stream, Math.max(seq, versions.get(stream) ?? 0));
    const update = values.length ? merge(values.map((row) => row.update)) : null;
    if (values.length > MANY) {
      rows.add({ doc, update, versions: [...versions] });
      for (const key of keys) rows.delete(key);
    }
    const range = IDBKeyRange.bound([doc], [doc, []]); // an array sorts after every text
    const store = transaction.objectStore(OWN);
    const [ownKeys, updates] = await Promise.all([finished(store.getAllKeys(range)), finished(store.getAll(range))]);
    const own = ownKeys.map(([, stream, seq], i) => ({ stream, seq, ...updates[i] }));
    own.sort((a, b) => a.order - b.order || a.seq - b.seq);
    return { update, versions, own };
  }

  applied(doc, update, brought) {
    if (brought.size === 0 && update.length <= NOTHING) return; // the usual reply after a moment offline
    this.#put((transaction) => transaction.objectStore(ROWS).add({ doc, update, versions: [...brought] }));
  }

  /** Store records of the replica: `written` here, or arrived at the peer. */
  own(doc, records, written) {
    const order = Date.now();
    this.#put((transaction) => {
      const store = transaction.objectStore(OWN);
      for (const { stream, seq, update } of records) {
        if (written) store.put({ update, order }, [doc, stream, seq]);
        else store.delete([doc, stream, seq]);
      }
    });
  }

  /** Resolve when all writes so far are done. */
  written() {
    clearTimeout(this.#timer);
    this.#timer = null;
    const queue = this.#queue.splice(0);
    if (queue.length) this.#last = Promise.all([this.#last, this.#write(queue)]);
    return this.#last;
  }

  #put(write) {
    this.#queue.push(write);
    this.#timer ??= setTimeout(() => this.written(), PAUSE);
  }

  async #write(queue) {
    try {
      const transaction = this.#database.transaction([ROWS, OWN], "readwrite");
      for (const write of queue) write(transaction);
      await new Promise((resolve, reject) => {
        transaction.oncomplete = resolve;
        transaction.onabort = transaction.onerror = () => reject(transaction.error);
      });
    } catch (error) {
      this.onFailure(error);
    }
  }
}

function finished(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
