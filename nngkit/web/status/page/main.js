// The status page: a section for each table that the daemon has.

import { $, say } from "./dom.js";
import { Changes, Rounds } from "./events.js";
import { Services } from "./services.js";
import { follow } from "./stream.js";
import { AnyTable, Members } from "./tables.js";

const services = new Services();
const special = { services, changes: new Changes(), rounds: new Rounds(), members: new Members() };
const STATES = {
  live: "live",
  lost: "connection lost: what is shown is old",
  refused: "refused: too many pages are open, or a token is needed (#token=TOKEN)",
};
let tables = new Map();

function begin({ name, tables: told, time }) {
  document.title = name;
  say($("name"), name);
  $("others").replaceChildren();
  tables = new Map();
  for (const [table, view] of Object.entries(special)) {
    $(table).hidden = !(table in told);
    view.clear(time);
  }
  document.querySelector(".skip").hidden = !("services" in told);
  for (const [table, summary] of Object.entries(told)) {
    if (table === "picks") continue;
    tables.set(table, special[table] || new AnyTable(table, summary));
  }
}

function change(parts) {
  if (parts.has("picks")) services.picked(parts.get("picks"));
  for (const [table, some] of parts) tables.get(table)?.changed(some);
}

follow(begin, change, (state) => {
  $("state").dataset.state = state;
  say($("state"), STATES[state]);
});
