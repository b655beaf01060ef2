"""Hints on standard error while a command gets nowhere: the cause, as `nngkit doctor` names it.

::

    nngkit req: hint: a PUB listens there, and a REQ talks to a REP only: be a sub, or look at the address

One look, AFTER seconds after the start, in a thread: at the addresses dialled and the connections refused while there
has been no peer, at the topics while messages arrive and none is wanted. A look never becomes a peer. A hint changes
neither the results nor the exit code, and none is written once the command has ended.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from nngkit.errors import ConfigError

if TYPE_CHECKING:
    from nngkit.cli.probing import Credentials
    from nngkit.protocols import Socket

__all__ = ["AFTER", "hinting", "hints"]

AFTER: Final = 2.0  # seconds without a peer: a dialler has tried 20 times by then
STEP: Final = 1.0  # seconds for each step of a look: over a network that is up, an answer takes milliseconds


@contextmanager
def hinting(look: Callable[[], Iterable[str]], say: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, and once AFTER seconds are over, say what `look` finds."""
    over, saying = threading.Event(), threading.Lock()

    def watch() -> None:
        if hasattr(signal, "pthread_sigmask"):  # a signal has to end a wait of the main thread, not of this one
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        if over.wait(AFTER):
            return
        for hint in look():
            with saying:
                if over.is_set():
                    return
                say(f"hint: {hint}")

    threading.Thread(target=watch, name="nngkit-hints", daemon=True).start()
    try:
        yield
    finally:
        with saying:
            over.set()


def hints(
    socket: Socket,
    protocol: str,
    dialled: Sequence[str],
    topics: Sequence[bytes],
    credentials: Callable[[], Credentials | None],
) -> Iterator[str]:
    """Yield hints at why `socket` makes no progress; none if it does. `protocol`: as in `nngkit doctor --protocol`."""
    stats = socket.stats
    if stats.joined:
        if protocol == "sub" and stats.read and not stats.received:
            shown = " or ".join(ascii(topic.decode(errors="backslashreplace")) for topic in topics)
            yield f"{stats.read} messages came, and none begins with {shown}: a topic is how a message begins"
        return
    for url in dialled:
        if (found := nobody(url, protocol, credentials)) is not None:
            yield found
    if not dialled and (cuts := socket.cuts):
        yield f"{cuts[-1].address} was refused: {cuts[-1].reason}"


def nobody(url: str, protocol: str, credentials: Callable[[], Credentials | None]) -> str | None:
    """Why no peer is found at `url`; None if nothing is wrong there.

    `credentials`: for TLS; None if they cannot be read a second time.
    """
    from nngkit.cli.diagnosis import Address, Connected, diagnose  # most commands need no hint, and ssl is slow
    from nngkit.cli.probing import Credentials, look, reach

    try:
        address = Address.of(url)
    except ConfigError as error:
        return error.why
    shown = credentials() if address.tls else None
    if address.transport == "ws" or (address.tls and shown is None):
        # who listens on a WebSocket is told to a peer alone, and a PUSH gives it a message
        seen = reach(address, STEP)
        if seen.connected is Connected.YES:
            return f"{url} takes connections, and no peer comes of them: nngkit doctor {url} --protocol {protocol}"
    else:
        seen = look(address, protocol, shown or Credentials(), STEP)
    found = diagnose(seen, protocol).findings
    problem = next((finding for finding in found if finding.level == "problem"), None)
    if problem is None:
        return None
    return f"{problem.what}: {problem.advice}" if problem.advice else problem.what
