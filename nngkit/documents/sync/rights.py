"""Rights of the peers of documents under a trust, and the owners of their streams.

An origin belongs to the first name that introduces it on a connection of its own, by a heartbeat or a request. From
then on that name speaks as it, and names that may carry "doc" do. They answer for what they pass on::

    what arrives                                      needs
    updates and awareness of the neighbour's own      edit of the document; awareness: view
    those of another origin                           carry of the neighbour, edit (view) of the origin's owner
    an update in whole (diff, give)                   edit or carry of the neighbour: nothing in it tells authors apart
    nack, want, have; and what is sent to a pipe      view, edit or carry

Without a trust, `trust` is None, and everything is granted. Knows neither sockets nor documents. Any thread may call
`speaks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from nngkit.documents.sync import messages
from nngkit.documents.versions import EditStream
from nngkit.trust import Choice, Policy, Rights

CARRY: Final = "doc"
OWNED: Final = 1024  # origins of one name, the newest: a peer without a store has a new one at each start
DECISIONS: Final = 65_536  # remembered, of pairs of name and document

RIGHT, BINDING = "right", "binding"


class DocumentRights:
    """Decisions of one peer. ``owners``: names by origin, as stored; ``keep`` stores another, in place of a third."""

    def __init__(
        self,
        trust: Choice | None,
        me: EditStream,
        owners: Mapping[bytes, str] | None = None,
        keep: Callable[[bytes, str, bytes | None], None] | None = None,
    ) -> None:
        self._rights = Rights(trust, "documents", carry=CARRY)
        self.trust = self._rights.trust
        self._keep = keep
        self._owners = dict(owners or {})
        self._of: dict[str, dict[bytes, None]] = {}
        for origin, name in self._owners.items():
            self._of.setdefault(name, {})[origin] = None
        if self.trust is not None:
            self._owners[me.origin] = self.trust.name
        self._policy: Policy | None = None if self.trust is None else self.trust.policy
        self._seen: dict[tuple[str | None, str], bool] = {}

    def changed(self) -> bool:
        """Return True, once, after the policy has changed."""
        if self.trust is None or self.trust.policy is self._policy:
            return False
        self._policy, self._seen = self.trust.policy, {}
        return True

    # ------------------------------------------------------------------ questions

    @property
    def all_see(self) -> bool:
        """True if no policy was written: then every peer may have every document."""
        return self.trust is None or self.trust.policy.is_open

    def owner(self, origin: bytes) -> str | None:
        """Return the name that an origin belongs to; None if none has introduced it."""
        return self._owners.get(origin)

    def speaks(self, who: str | None, origin: bytes) -> bool:
        """Return True if ``who`` owns the origin, or may carry. A refusal is counted."""
        owner = self._owners.get(origin)
        return (owner is not None and owner == who) or self._rights.speaks(who, owner or f"stream {origin.hex()}")

    def carries(self, who: str | None) -> bool:
        """Return True if ``who`` may speak for others."""
        return self._rights.grants(who, "carry", CARRY)

    def sees(self, who: str | None, doc: str) -> bool:
        """Return True if ``who`` may have the document. Nothing is counted."""
        if self.trust is None:
            return True
        if self.trust.policy is not self._policy:
            return self._sees(who, doc)  # until `changed` has seen it
        found = self._seen.get((who, doc))
        if found is None:
            found = self._sees(who, doc)
            if len(self._seen) < DECISIONS:
                self._seen[who, doc] = found
        return found

    def _sees(self, who: str | None, doc: str) -> bool:
        grants = self._rights.grants
        return grants(who, "view", doc) or grants(who, "edit", doc) or grants(who, "carry", CARRY)

    def writes(self, who: str | None, doc: str) -> bool:
        """Return True if what ``who`` sends in whole may change the document. Nothing is counted."""
        return self._rights.grants(who, "edit", doc) or self.carries(who)

    # ------------------------------------------------------------------ messages

    def introduce(self, who: str | None, origin: bytes) -> str | None:
        """Give an origin without an owner to ``who``; return why it may not speak as it."""
        if who and origin not in self._owners:
            self._own(origin, who)
            return None
        return None if self.speaks(who, origin) else f"binding: the stream is not of {who}"

    def _own(self, origin: bytes, who: str) -> None:
        mine = self._of.setdefault(who, {})
        oldest = next(iter(mine)) if len(mine) >= OWNED else None
        if oldest is not None:
            del mine[oldest], self._owners[oldest]
        mine[origin] = None
        self._owners[origin] = who
        if self._keep is not None:
            self._keep(origin, who, oldest)

    def objection(self, message: messages.BusMessage, who: str | None) -> str | None:
        """Return why a message of the BUS is refused, code first; None if it is not."""
        if isinstance(message, messages.Heartbeat):
            return self.introduce(who, message.sender.origin)
        stream = message.stream if isinstance(message, messages.Updates) else message.sender
        if not self.speaks(who, stream.origin):
            return f"binding: the stream is not of {who}"
        if isinstance(message, messages.Bye):
            return None
        # without an owner here, the name that carries it answers for it
        author = self._owners.get(stream.origin)
        if isinstance(message, messages.Updates):
            return None if author is None else self._denied(author, "edit", message.doc)
        if author is None or self.sees(author, message.doc):
            return None
        return self._denied(author, "view", message.doc)

    def refusal(self, request: messages.SyncRequest, who: str | None) -> tuple[str, str] | None:
        """Return code and reason of the refusal of a request; None if it is not refused."""
        if (why := self.introduce(who, request.sender.origin)) is not None:
            return BINDING, why
        if isinstance(request, messages.Hello | messages.Proof | messages.Pull):
            return None  # a transfer has a random name, which only the reply to a want tells
        if isinstance(request, messages.Give):
            if not self.writes(who, request.doc) and (why := self._denied(who, "edit", request.doc)) is not None:
                return "refused", why
        elif not self.sees(who, request.doc) and (why := self._denied(who, "view", request.doc)) is not None:
            return RIGHT, why
        return None

    def _denied(self, who: str | None, right: str, doc: str) -> str | None:
        return None if self._rights.may(who, right, doc) else f"right: {who} may not {right} {doc}"

    def visible(self, who: str | None, docs: Iterable[str]) -> tuple[str, ...]:
        """Return those of the documents that ``who`` may have."""
        return tuple(doc for doc in docs if self.sees(who, doc))
