"""Health checks of a server, by a function of the program."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import trio

from nngkit.background import Calling
from nngkit.calls.handlers import call_plainly, order_to_end
from nngkit.calls.texts import text_of

log = logging.getLogger("nngkit.calls")


async def check_health(
    calling: Calling, name: str, healthy: Callable[[], Any], interval: float, changed: Callable[[str], object]
) -> None:
    """Ask `healthy` every `interval` seconds, for ever; call `changed` with why it is not, "" once it is again.

    It is not while `healthy` returns a false value, or raises, or takes longer than the interval.
    """
    was = True
    of = {"service": name}
    one = trio.CapacityLimiter(1)  # a check that hangs takes one thread, not one more every interval
    while True:
        why = ""
        try:
            with trio.fail_after(max(interval, 0.1)):
                if not await call_plainly(healthy, one):
                    why = "it returned a false value"
        except trio.TooSlowError:
            why = f"it took longer than {interval:g} s"
        except BaseException as error:
            if order_to_end(error) is not None:
                raise
            why = f"{type(error).__name__}: {text_of(error)}"
        if bool(why) == was:
            was = not why
            if why:
                log.warning("%s: not healthy, calls are refused: %s", name, why, extra=of)
            else:
                log.info("%s: healthy again", name, extra=of)
            changed(why)
        calling.returned()
        await trio.sleep(interval)
