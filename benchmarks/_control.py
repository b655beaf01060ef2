"""Control of several worker processes by the one that measures.

::

    controller = Controller(16)                    # the measuring process; waits for 16 connections
    controller.to_all({"do": "edit", "count": 3})  # the same command to each, in order of connection: their replies
    controller.to_each([{...}, {...}, ...])        # a command of its own to each

    commands = Commands(task)                      # each of the 16
    commands.reply({"address": ...})
    command = commands.next()                      # blocks: call it in a thread if there is an event loop

All times are `time.monotonic()`, a clock shared by all processes of a machine.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

from _child import report

TIMEOUT = 110.0  # seconds for a reply


class Controller:
    """Connections to `count` workers; `hellos` are their first replies."""

    def __init__(self, count: int) -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=count) as server:
            server.settimeout(TIMEOUT)
            report(control=server.getsockname()[1])
            links = [server.accept()[0] for _ in range(count)]
        for link in links:
            link.settimeout(TIMEOUT)
        self._files = [link.makefile("rw") for link in links]
        self.hellos = self._replies()

    def _replies(self) -> list[dict[str, Any]]:
        return [self._reply(index) for index in range(len(self._files))]

    def to_all(self, command: dict[str, Any]) -> list[dict[str, Any]]:
        """Send the same command to all workers; return their replies."""
        return self.to_each([command] * len(self._files))

    def to_one(self, index: int, command: dict[str, Any]) -> dict[str, Any]:
        """Send a command to one worker; return its reply."""
        self._send(index, command)
        return self._reply(index)

    def to_each(self, commands: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Send each worker its own command; return their replies."""
        for index, command in enumerate(commands):
            self._send(index, command)
        return self._replies()

    def _send(self, index: int, command: dict[str, Any]) -> None:
        self._files[index].write(json.dumps(command) + "\n")
        self._files[index].flush()

    def _reply(self, index: int) -> dict[str, Any]:
        line = self._files[index].readline()
        if not line:
            raise SystemExit(f"process {index} of {len(self._files)} ended early")
        reply: dict[str, Any] = json.loads(line)
        return reply


class Commands:
    """A worker's end of the connection."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._file = socket.create_connection(("127.0.0.1", task["control"]), TIMEOUT).makefile("rw")

    def reply(self, what: dict[str, Any]) -> None:
        self._file.write(json.dumps(what) + "\n")
        self._file.flush()

    def next(self) -> dict[str, Any]:
        command: dict[str, Any] = json.loads(self._file.readline() or "null")
        return command
