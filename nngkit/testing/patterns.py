"""Descriptions of patterns: the two ends of a protocol, and how a message goes from one to the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from nngkit.protocols import Bus, Pair0, Pair1, Pub, Pull, Push, Rep, Req, Respondent, Sub, Surveyor
from nngkit.testing.callers import WAIT, Background, Caller
from nngkit.testing.wires import Wire


@dataclass(frozen=True)
class Pattern:
    """Both ends of a protocol. The first end sends, the second receives; of an answered pattern, it also replies.

    ::

        Pattern("priority request", PriorityReq, Rep, answered=True, verb="request")

    Attributes:
        name: Name in reports.
        first: Makes the sending end: a socket class, or a function that takes ``listen=``, ``dial=`` and the options of
            a socket.
        second: Makes the receiving end.
        answered: True if messages are requests. The second end's ``recv()`` then returns a request with `body` and
            ``reply()``.
        verb: Name of the first end's method that sends a message. It has an awaitable twin, named `a` and the verb.
        verb_options: Options for this method where it waits for a reply.
        first_options: Options of the first end.
        second_options: Options of the second end.
        exclusive: True if an end has one peer at a time.
        reply_body: Returns the reply from the result of the verb. The default is for a verb that returns bytes.
    """

    name: str
    first: Callable[..., Any]
    second: Callable[..., Any]
    answered: bool = False
    verb: str = "send"
    verb_options: Mapping[str, Any] = field(default_factory=dict)
    first_options: Mapping[str, Any] = field(default_factory=dict)
    second_options: Mapping[str, Any] = field(default_factory=dict)
    exclusive: bool = False
    reply_body: Callable[[Any], bytes] = bytes

    def open_first(self, **options: Any) -> Any:
        """Return a new first end."""
        return self.first(**{**self.first_options, **options})

    def open_second(self, **options: Any) -> Any:
        """Return a new second end."""
        return self.second(**{**self.second_options, **options})

    def pair(self, wire: Wire, *, first_listens: bool, **options: Any) -> tuple[Any, Any]:
        """Return both ends, connected; the caller closes them.

        Raises:
            TimedOut: They are not connected within 20 seconds.
        """
        options = {**wire.options, **options}
        if first_listens:
            first = self.open_first(listen=wire.address(), **options)
            second = self.open_second(dial=first.address, **options)
        else:
            second = self.open_second(listen=wire.address(), **options)
            first = self.open_first(dial=second.address, **options)
        try:
            first.wait_for_peers(1, WAIT)
            second.wait_for_peers(1, WAIT)
        except BaseException:
            first.close(0.0)
            second.close(0.0)
            raise
        return first, second

    @contextmanager
    def connected(self, wire: Wire, *, first_listens: bool = True, **options: Any) -> Iterator[tuple[Any, Any]]:
        """Open both ends, connected, and close them at the end of the block."""
        first, second = self.pair(wire, first_listens=first_listens, **options)
        # the sender closes first, while the other end can still receive
        with second, first:
            yield first, second

    def sender(self, first: Any) -> Any:
        """Return the method by which the first end sends."""
        return getattr(first, self.verb)

    def carry(self, caller: Caller, first: Any, second: Any, bodies: Sequence[bytes]) -> list[bytes]:
        """Send all of `bodies` at the first end, and return those received at the second.

        Each request is answered with its body reversed.

        Raises:
            AssertionError: Replies are missing or wrong.
        """
        if not self.answered:
            for body in bodies:
                caller.call(self.sender(first), body)
            return [caller.call(second.recv, timeout=WAIT) for _ in bodies]
        requests = Background(lambda: [self.request(caller, first, body) for body in bodies])
        received = []
        for _ in bodies:
            request = caller.call(second.recv, timeout=WAIT)
            received.append(request.body)
            caller.call(request.reply, request.body[::-1])
        replies = requests.result()
        if replies != [body[::-1] for body in bodies]:
            raise AssertionError(f"replies to {list(bodies)!r}: {replies!r}")
        return received

    def request(self, caller: Caller, first: Any, body: bytes) -> bytes:
        """Return the reply to one request; waits at most 20 seconds."""
        return self.reply_body(caller.call(self.sender(first), body, timeout=WAIT, **self.verb_options))


def _only_reply(result: Any) -> bytes:
    """Return the reply of a survey with one respondent."""
    counts = (result.expected, result.answered, len(result.replies))
    if counts != (1, 1, 1):
        raise AssertionError(f"respondents, respondents that answered, replies: {counts} instead of 1 each")
    return bytes(result.replies[0].body)


#: The patterns of nngkit.protocols.
PATTERNS: Final = (
    Pattern("pair0", Pair0, Pair0, exclusive=True),
    Pattern("pair1", Pair1, Pair1, exclusive=True),
    Pattern("reqrep", Req, Rep, answered=True, verb="request"),
    Pattern("pipeline", Push, Pull),
    Pattern("bus", Bus, Bus),
    Pattern("pubsub", Pub, Sub, second_options={"topics": b""}),
    Pattern(
        "survey",
        Surveyor,
        Respondent,
        answered=True,
        verb="survey",
        verb_options={"early": True},
        reply_body=_only_reply,
    ),
)
