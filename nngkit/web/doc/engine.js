// A Y.Doc as the replica sees it: updates in, updates out, a state and a digest. Knows Yjs and nothing of peers.
//
//     const engine = new Engine(new Y.Doc());
//     engine.onEdit = (update) => replica.edited(update, now);      // after each transaction of this page, not of others
//     engine.apply(update);                                         // what others did

import * as Y from "yjs";
import { contentDigest } from "./digest.js";

export const REMOTE = Symbol("from a peer"); // the origin of transactions that are not this page's

export class Engine {
  onEdit = () => {};

  constructor(ydoc) {
    this.ydoc = ydoc;
    ydoc.on("update", (update, origin) => {
      if (origin !== REMOTE) this.onEdit(update);
    });
  }

  /**
   * Take in what somebody else did. Throws where it is no update, or does not connect to what is here: parts of it may
   * then be in, which does no harm, as the same parts coming again change nothing.
   */
  apply(update) {
    Y.decodeUpdate(update); // reads all of it before anything is changed
    Y.applyUpdate(this.ydoc, update, REMOTE);
    const { store } = this.ydoc;
    if (store.pendingStructs === null && store.pendingDs === null) return;
    store.pendingStructs = store.pendingDs = null; // Yjs would keep it for later; here what is lacking is asked for
    throw new Error("an update that does not connect to what is here");
  }

  state() { return Y.encodeStateVector(this.ydoc); }

  /** An update with all that `state` lacks, and every deletion; null: from nothing. */
  changesSince(state) { return state === null ? Y.encodeStateAsUpdate(this.ydoc) : Y.encodeStateAsUpdate(this.ydoc, state); }

  merge(updates) { return updates.length === 1 ? updates[0] : Y.mergeUpdates(updates); }

  digest() { return contentDigest(this.ydoc); }
}
