// A Y.Doc as the replica sees it: updates in, updates out, a state vector and a digest. Knows Yjs, but no peers.
//
//     const engine = new Engine(new Y.Doc());
//     engine.onEdit = (update, why) => replica.edited(update, now, why);   // after each transaction of this page only
//     engine.apply(update);                                         // edits of other peers

import * as Y from "yjs";
import { contentDigest } from "./digest.js";
import { unstorable } from "./storable.js";

export const REMOTE = Symbol("from a peer"); // origin of transactions that are not this page's

export class Engine {
  onEdit = () => {}; // (update, null or why peers cannot store it)

  constructor(ydoc) {
    this.ydoc = ydoc;
    ydoc.on("update", (update, origin, _, transaction) => {
      if (origin !== REMOTE) this.onEdit(update, unstorable(transaction));
    });
  }

  /**
   * Apply an update of another peer. Throws for an invalid update, and for one that depends on missing edits. Parts of it may
   * have been applied then, which is harmless: applying them again changes nothing.
   */
  apply(update) {
    Y.decodeUpdate(update); // validates it before anything is changed
    Y.applyUpdate(this.ydoc, update, REMOTE);
    const { store } = this.ydoc;
    if (store.pendingStructs === null && store.pendingDs === null) return;
    store.pendingStructs = store.pendingDs = null; // Yjs would keep it; the replica requests what is missing
    throw new Error("an update that depends on missing edits");
  }

  state() { return Y.encodeStateVector(this.ydoc); }

  /** Return an update with all edits that `state` lacks, and every deletion; null: the whole document. */
  changesSince(state) { return state === null ? Y.encodeStateAsUpdate(this.ydoc) : Y.encodeStateAsUpdate(this.ydoc, state); }

  merge(updates) { return updates.length === 1 ? updates[0] : Y.mergeUpdates(updates); }

  digest() { return contentDigest(this.ydoc); }
}
