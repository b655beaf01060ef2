"""Shared: an object of the program's that all nodes of a cluster change in one order. Under trio.

::

    class Prices:
        def __init__(self): self.prices = {}
        def update(self, fragment): name, price = fragment.split(b"="); self.prices[name] = price
        def full_state(self): return b";".join(b"%s=%s" % pair for pair in self.prices.items())
        def load(self, full): self.prices = dict(pair.split(b"=") for pair in full.split(b";") if pair)

    shared = node.share("prices", Prices())
    await shared.change(b"tea=2")           # applied here, and in this order at all nodes
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import trio

from nngkit.cluster.frames import as_bytes
from nngkit.errors import TimedOut

if TYPE_CHECKING:
    from nngkit.cluster.content.part import ClusterDocuments


class Shared:
    """Handle of a shared object; `content` is the object itself, which only the cluster changes."""

    def __init__(
        self, name: str, content: Any, documents: ClusterDocuments, act: Callable[[], None], check: Callable[[], None]
    ) -> None:
        self.name = name
        self.content = content
        self._documents = documents
        self._act = act
        self._check = check
        self._changed = trio.Event()
        self._changes = 0

    @property
    def behind(self) -> bool:
        """True while the full state or changes are missing here, as far as is known."""
        return self._documents.behind(self.name)

    async def change(self, fragment: bytes, timeout: float | None = None) -> None:
        """Change the object at all nodes; return once the change is applied here.

        If cancelled, or timed out, the change is made all the same, once there is a host.

        Raises:
            Full: 65,536 changes of this node, or 16 MiB, wait for the host.
            TooLarge: The fragment is over the limit.
            TimedOut: `timeout` seconds have passed.
            AccessDenied: The cluster does not want this node.
            Closed: The node was closed.
        """
        self._check()
        number = self._documents.change(self.name, as_bytes("a fragment", fragment), trio.current_time())
        self._act()
        with trio.move_on_after(math.inf if timeout is None else timeout):
            while self._documents.confirmed(self.name) < number:
                await self._changed.wait()
                self._check()
            return
        raise TimedOut(f"the change of {self.name!r} is not confirmed in {timeout} s", timeout)

    async def wait_for_change(self) -> None:
        """Wait until the object has changed, by whichever node. Raises Closed, and AccessDenied as `change`."""
        await self._changes_after(self._changes)

    async def _changes_after(self, seen: int) -> int:
        """Wait until there were more than `seen` changes since `share`; return how many."""
        self._check()
        while self._changes <= seen:
            await self._changed.wait()
            self._check()
        return self._changes

    def _notify(self) -> None:
        self._changes += 1
        self._changed.set()
        self._changed = trio.Event()
