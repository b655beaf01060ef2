// The events of /v1/events. Changes that come before the next frame are given on together.

/** Follow the events. `begin({name, tables, time})` comes first, and again after a lost connection; `change(Map)` has the
 *  parts of each table; `state(text)` tells of the connection. */
export function follow(begin, change, state) {
  let waiting = new Map();
  let frame = 0;

  function give() {
    frame = 0;
    const parts = waiting;
    waiting = new Map();
    change(parts);
  }

  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  const source = new EventSource(token ? `/v1/events?access_token=${encodeURIComponent(token)}` : "/v1/events");
  source.addEventListener("open", () => state("live"));
  source.addEventListener("error", () => state(source.readyState === EventSource.CLOSED ? "refused" : "lost"));
  source.addEventListener("begin", (event) => {
    waiting = new Map();
    begin(JSON.parse(event.data));
  });
  source.addEventListener("message", (event) => {
    for (const [table, part] of Object.entries(JSON.parse(event.data))) {
      if (!waiting.has(table)) waiting.set(table, []);
      waiting.get(table).push(part);
    }
    // no frames come while the page is in the background: it catches up a few times a second
    if (!frame) frame = document.hidden ? setTimeout(give, 500) : requestAnimationFrame(give);
  });
}
