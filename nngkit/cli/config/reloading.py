"""Reload at SIGHUP: reads the file again, applies what can change, and says what needs a restart.

Without `--config` SIGHUP ends the process, as it does by default: there is nothing to read, and a closed terminal ends
what was started in it. A thread does the work, as a handler may interrupt anything.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from nngkit.cli.config.resolution import Resolution
from nngkit.cli.streams.stderr import say
from nngkit.errors import NngkitError


class Reload:
    """`read` returns what holds now, and raises NngkitError; `held` held at the start."""

    def __init__(self, name: str, read: Callable[[], Resolution], held: Resolution) -> None:
        self._name = name
        self._read = read
        self._held = held
        self._appliers: dict[str, Callable[[Any], object]] = {}
        self._asked: SimpleQueue[None] = SimpleQueue()

    def on(self, key: str, apply: Callable[[Any], object]) -> None:
        """Have a new value of the setting `key` applied by `apply`, in a thread; it may raise NngkitError."""
        self._appliers[key] = apply

    def in_trio(self, key: str, apply: Callable[[Any], object]) -> None:
        """`on`, with `apply` called in the running trio loop, and without waiting for it."""
        import trio

        token = trio.lowlevel.current_trio_token()

        def in_loop(value: Any) -> None:
            try:
                apply(value)
            except NngkitError as error:
                say(self._name, f"not reloaded: {error}")

        self.on(key, lambda value: token.run_sync_soon(in_loop, value))

    def start(self) -> None:
        """Handle SIGHUP from now on. In the main thread."""
        signal.signal(signal.SIGHUP, lambda *_: self._asked.put(None))
        threading.Thread(target=self._run, name="nngkit-reload", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._asked.get()
            try:
                say(self._name, self._reload())
            except NngkitError as error:
                say(self._name, f"not reloaded: {error}")
            except SystemExit:  # a required setting is gone, which the parser has said
                say(self._name, "not reloaded")

    def _reload(self) -> str:
        new = self._read()
        before, now = ({key: each.texts for key, each in read.found.items()} for read in (self._held, new))
        changed = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
        applied = [key for key in changed if key in self._appliers]
        for key in applied:
            self._appliers[key](getattr(new.arguments, key))
        kept = {key: each for key, each in self._held.found.items() if key not in applied}
        taken = {key: new.found[key] for key in applied if key in new.found}
        self._held = Resolution({**kept, **taken}, new.arguments)
        words = [f"reloaded: {', '.join(applied) or 'no setting'}"]
        if left := [key for key in changed if key not in applied]:
            words.append(f"needs a restart: {', '.join(left)}")
        return "; ".join([*words, *_trust()])


def _trust() -> list[str]:
    """Read pass and policy of the process again."""
    from nngkit.trust import Trust, chosen

    trust = chosen(None)
    if not isinstance(trust, Trust):
        return []
    return ["pass and policy: " + ("read" if trust.refresh(now=True) else "unchanged")]
