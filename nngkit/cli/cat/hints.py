"""Hints on standard error while a command has no peer: the cause, as `nngkit doctor` names it.

::

    nngkit req: hint: a PUB listens there, and a REQ talks to a REP only: be a sub, or look at the address

A thread looks once, AFTER seconds after the start: without a peer, at the dialed addresses and refused connections; if
messages arrive and match no topic, at the topics. A probe never becomes a peer. A hint changes neither results nor exit
code, and none is written once the command has ended.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nngkit.cli.silence import AFTER, no_peer

if TYPE_CHECKING:
    from nngkit.cli.probe import Credentials
    from nngkit.protocols import Socket


@contextmanager
def hinting(look: Callable[[], Iterable[str]], say: Callable[[str], None]) -> Iterator[None]:
    """Report what `look` finds, once, AFTER seconds into the block."""
    over, reporting = threading.Event(), threading.Lock()

    def watch() -> None:
        if hasattr(signal, "pthread_sigmask"):  # signals have to interrupt the main thread
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        if over.wait(AFTER):
            return
        for hint in look():
            with reporting:
                if over.is_set():
                    return
                say(f"hint: {hint}")

    threading.Thread(target=watch, name="nngkit-hints", daemon=True).start()
    try:
        yield
    finally:
        with reporting:
            over.set()


def hints(
    socket: Socket,
    protocol: str,
    dialed: Sequence[str],
    topics: Sequence[bytes],
    credentials: Callable[[], Credentials | None],
) -> Iterator[str]:
    """Yield the reasons why `socket` has no peer or no message. `protocol`: as in `nngkit doctor --protocol`."""
    stats = socket.stats
    if stats.joined:
        if protocol == "sub" and stats.read and not stats.received:
            shown = " or ".join(ascii(topic.decode(errors="backslashreplace")) for topic in topics)
            yield f"{stats.read} messages arrived, and none begins with {shown}: a topic is a prefix of the message"
        return
    for url in dialed:
        if (found := no_peer(url, protocol, credentials)) is not None:
            yield found
    if not dialed and (cuts := socket.cuts):
        yield f"{cuts[-1].address} was refused: {cuts[-1].reason}"
