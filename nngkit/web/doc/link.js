// SP sockets in a browser: BUS and REQ over WebSocket. Knows frames, ids and timeouts, but no documents.
//
// One message is one binary WebSocket message: header, then body. BUS has no header; REQ's is an id of 4 bytes,
// big-endian, top bit set, and the reply carries the same. The subprotocol to offer is that of the listener.
//
//     const socket = await open("ws://host:4712/repair", REP, { WebSocket, timeout: 5 });
//     const requests = new Requests(socket, Math.random);
//     const reply = await requests.ask(bytes, 5);            // seconds

export const BUS = "bus.sp.nanomsg.org";
export const REP = "rep.sp.nanomsg.org";
const MARK = 0x80000000; // marks the last word of a header

export class LinkLost extends Error {
  constructor(why) {
    super(why);
    this.name = "LinkLost";
  }
}

/** Return `address` with "*" replaced by `host`, the host of the page's server; null for an address that a page cannot dial. */
export function dialable(address, host) {
  if (!/^wss?:\/\//.test(address)) return null;
  return address.replace(/^(wss?:\/\/)\*(?=[:/]|$)/, (_, scheme) => scheme + host);
}

/** Open a WebSocket. Rejects with LinkLost if it fails, or takes longer than `timeout` seconds. */
export function open(address, protocol, { WebSocket, timeout }) {
  return new Promise((resolve, reject) => {
    let socket;
    try {
      socket = new WebSocket(address, protocol);
    } catch (error) {
      reject(new LinkLost(`${address}: ${error.message}`));
      return;
    }
    socket.binaryType = "arraybuffer";
    const give = (why) => {
      clearTimeout(timer);
      socket.onopen = socket.onclose = null;
      socket.close();
      reject(new LinkLost(why));
    };
    const timer = setTimeout(() => give(`no connection within ${timeout} s`), timeout * 1000);
    socket.onclose = () => give("no connection");
    socket.onopen = () => {
      clearTimeout(timer);
      socket.onopen = socket.onclose = null;
      resolve(socket);
    };
  });
}

export class Requests {
  #socket;
  #next;
  #waiting = new Map(); // id -> { resolve, reject, timer }

  constructor(socket, random) {
    this.#socket = socket;
    this.#next = Math.floor(random() * MARK);
    socket.onmessage = ({ data }) => this.#receive(data);
  }

  /** Send a request; resolve to the reply's body. Rejects with LinkLost after `timeout` seconds, or when the connection ends. */
  ask(body, timeout) {
    if (this.#socket.readyState !== 1) return Promise.reject(new LinkLost("the connection is closed"));
    const id = this.#next;
    this.#next = (this.#next + 1) % MARK;
    const frame = new Uint8Array(4 + body.length);
    new DataView(frame.buffer).setUint32(0, MARK + id);
    frame.set(body, 4);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.#end(id)?.reject(new LinkLost(`no reply within ${timeout} s`)), timeout * 1000);
      this.#waiting.set(id, { resolve, reject, timer });
      this.#socket.send(frame);
    });
  }

  /** Close the connection and reject all waiting requests. */
  close() {
    for (const id of [...this.#waiting.keys()]) this.#end(id).reject(new LinkLost("the connection has ended"));
    this.#socket.close();
  }

  #end(id) {
    const waiting = this.#waiting.get(id);
    if (waiting) clearTimeout(waiting.timer);
    this.#waiting.delete(id);
    return waiting;
  }

  #receive(data) {
    if (!(data instanceof ArrayBuffer) || data.byteLength < 4) return;
    const word = new DataView(data).getUint32(0);
    if (word < MARK) return;
    this.#end(word - MARK)?.resolve(new Uint8Array(data, 4)); // none: the request has timed out
  }
}
