"""Why there is no peer at an address, as `nngkit doctor` names it: in the error of a command, or as a hint.

::

    nngkit discover: tcp://hub:5556: no discovery daemon answered within 2 s; no listener at hub:5556: start the ...
    nngkit serve: hint: there is no host 'hub' (Name or service not known): check its spelling; still trying
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from nngkit.cli.streams.stderr import say
from nngkit.errors import ConfigError, NngkitError, Unreachable

if TYPE_CHECKING:
    from nngkit.cli.probe import Credentials

AFTER: Final = 2.0  # seconds without a peer: a dialer has tried 20 times by then
STEP: Final = 1.0  # seconds for each step of a probe: replies take milliseconds
PATIENCE: Final = 1.5  # seconds for a look at one address: a name server that is away takes longer
OTHER_PORT: Final = {  # of the two ports of a daemon, the wrong one
    "req": "a daemon is asked at its query address, by default the port after the one of its surveys",
    "respondent": "a service dials the daemon's survey address, by default the port before the one of its answers",
}


async def with_cause(error: NngkitError, daemons: Sequence[str]) -> NngkitError:
    """Return `error` with its cause, if it is that no daemon answers and no refusal says why."""
    if not isinstance(error, Unreachable):
        return error
    causes = await causes_of(daemons, "req", daemon=True)
    if not causes:
        return error
    return Unreachable(error.address, f"{error.reason}; {'; '.join(causes)}")


async def hint_if(
    silent: Callable[[], bool], name: str, urls: Sequence[str], protocol: str, daemon: bool = False
) -> None:
    """Say on standard error why there is no peer at `urls`, once, if `silent()` after the first seconds."""
    import trio

    await trio.sleep(AFTER)
    if not silent():
        return
    for cause in await causes_of(urls, protocol, daemon=daemon):
        if silent():
            say(name, f"hint: {cause}; still trying")


async def causes_of(urls: Sequence[str], protocol: str, *, daemon: bool = False) -> list[str]:
    """Return what is wrong at each of these addresses, as far as a look tells within PATIENCE.

    `daemon`: they are those of discovery daemons, which have two ports. Nothing if a refusal says why, as errors do.
    """
    import trio

    from nngkit.trust.standing import standing

    found: dict[str, str] = {}
    if standing(urls):
        return []

    async def look(url: str) -> None:
        with trio.move_on_after(PATIENCE):  # the thread is left alone then: it may wait for a name server
            seen = partial(no_peer, url, protocol, lambda: None)
            cause = await trio.to_thread.run_sync(seen, abandon_on_cancel=True)
            if cause is not None:
                what, mistaken, _ = cause.partition(": use a ")
                found[url] = f"{what}: {OTHER_PORT[protocol]}" if mistaken and daemon else cause
            return
        found[url] = f"a look at {url} did not end in {PATIENCE:g} s: its name is not resolved, or its process hangs"

    async with trio.open_nursery() as nursery:
        for url in urls:
            nursery.start_soon(look, url)
    return [found[url] for url in urls if url in found]


def no_peer(url: str, protocol: str, credentials: Callable[[], Credentials | None]) -> str | None:
    """Return why there is no peer at `url`; None if no problem is found.

    `credentials` returns those for TLS, or None if they cannot be read a second time.
    """
    from nngkit.cli.diagnosis import Address, Connected, diagnose  # most commands need no hint, and ssl is slow
    from nngkit.cli.probe import Credentials, look, reach

    try:
        address = Address.of(url)
    except ConfigError as error:
        return error.why
    shown = credentials() if address.tls else None
    if address.transport == "ws" or (address.tls and shown is None):
        # a WebSocket listener names its protocol only to a peer, and a PUSH would send that a message
        seen = reach(address, STEP)
        if seen.connected is Connected.YES:
            return f"{url} accepts connections, but no peer: nngkit doctor {url} --protocol {protocol}"
    else:
        seen = look(address, protocol, shown or Credentials(), STEP)
    found = diagnose(seen, protocol).findings
    problem = next((finding for finding in found if finding.level == "problem"), None)
    if problem is None:
        return None
    return f"{problem.what}: {problem.advice}" if problem.advice else problem.what
