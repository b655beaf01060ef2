// What stands in the way, in words: what is wrong and what to do about it. Pure.
//
//     fault("token", "the token is wrong or missing", { kept: true })
//     // { short, title, what, key: ask for another key, reload: offer to reload, list: offer the other documents }

const NOTHING = { key: false, reload: false, list: false };

/** `code` and `why` are those of the refusal; `kept`: what was written here stays in this browser. */
export function fault(code, why, { kept }) {
  switch (code) {
    case "token":
      return {
        ...NOTHING, key: true, short: "Not let in", title: "You are not let in",
        what: `The peer says: ${why}. Open the whole link that you were given, or put in its key.`,
      };
    case "store":
      return {
        ...NOTHING, reload: true, short: "Other documents are served here", title: "This address now serves other documents",
        what: `Nothing of what is shown below is sent to them. ${
          kept ? "What had not arrived stays in this browser, for when the old ones are served here again" : "Copy what you want to keep"
        }; then reload the page to see the new ones.`,
      };
    case "unknown-document":
      return {
        ...NOTHING, list: true, short: "No such document here", title: "This document is not served here",
        what: `The peer says: ${why}. Choose another document, or ask whoever serves them to add it.`,
      };
    case "version":
      return {
        ...NOTHING, reload: true, short: "Not understood", title: "The page and its peer are of different versions",
        what: `The older one cannot read the newer one (${why}). Reload the page; if that does not help, update nngkit where it serves this page.`,
      };
    default:
      return {
        ...NOTHING, reload: true, short: "Not understood", title: "The page and its peer do not understand each other",
        what: `What was wrong: ${why}. Reload the page; if that does not help, ask whoever serves it.`,
      };
  }
}
