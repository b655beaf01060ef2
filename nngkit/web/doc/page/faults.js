// Texts for faults that stop the page: what is wrong, and what to do about it. Pure.
//
//     fault("token", "the token is wrong or missing", { kept: true })
//     // { short, title, what, key: ask for another key, reload: offer to reload, list: offer the other documents }

const NOTHING = { key: false, reload: false, list: false };

/** `code` and `why`: those of the refusal. `kept`: true if this browser stores the edits made here. */
export function fault(code, why, { kept }) {
  switch (code) {
    case "token":
      return {
        ...NOTHING, key: true, short: "Access denied", title: "Access denied",
        what: `The peer refused: ${why}. Open the complete link that you were given, or enter its key.`,
      };
    case "insecure":
      return {
        ...NOTHING, short: "Not possible on plain http", title: "This link needs https",
        what: "Your browser keeps keys only for pages on https, or on localhost of this computer, and this page came over plain http. Ask for a link that begins with https.",
      };
    case "expired": case "not-yet": case "revoked": case "other-realm": case "binding": case "right":
      return {
        ...NOTHING, reload: true, short: "Access denied", title: "Access denied",
        what: `The peer refused: ${why}. Ask the person who sent you the link for a new one.`,
      };
    case "store":
      return {
        ...NOTHING, reload: true, short: "Other documents are served here", title: "This address now serves other documents",
        what: `Nothing shown below is sent to them. ${
          kept ? "Changes that were not sent stay in this browser, in case the previous documents are served here again" : "Copy what you want to keep"
        }, then reload the page to see the new ones.`,
      };
    case "unknown-document":
      return {
        ...NOTHING, list: true, short: "No such document here", title: "This document is not served here",
        what: `The peer refused: ${why}. Choose another document, or ask the person who runs this server to add it.`,
      };
    case "version":
      return {
        ...NOTHING, reload: true, short: "Incompatible versions", title: "The page and its peer have different versions",
        what: `The older one cannot read the newer one (${why}). Reload the page; if that does not help, update nngkit on the server.`,
      };
    default:
      return {
        ...NOTHING, reload: true, short: "Protocol error", title: "The page cannot communicate with its peer",
        what: `The error was: ${why}. Reload the page; if that does not help, contact the person who runs this server.`,
      };
  }
}
