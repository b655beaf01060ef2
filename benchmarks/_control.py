"""Processes that do something together, told what by one of them that measures.

::

    crew = Crew(16)                          # the measured process; waits until 16 have come
    crew.ask({"do": "edit", "count": 3})     # the same to each, in the order in which they came: their answers
    crew.each([{...}, {...}, ...])           # to each its own

    orders = Orders(task)                    # each of the 16
    orders.tell({"address": ...})
    order = orders.hear()                    # blocks: for a thread, where there is a loop

Time is `time.monotonic()` everywhere: its clock is one for all processes of a machine.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence
from typing import Any

from _child import say

TOO_LONG = 110.0  # seconds that an answer may take


class Crew:
    """`count` others; `said` is what each of them told first."""

    def __init__(self, count: int) -> None:
        with socket.create_server(("127.0.0.1", 0), backlog=count) as server:
            server.settimeout(TOO_LONG)
            say(control=server.getsockname()[1])
            links = [server.accept()[0] for _ in range(count)]
        for link in links:
            link.settimeout(TOO_LONG)
        self._files = [link.makefile("rw") for link in links]
        self.said = self._answers()

    def _answers(self) -> list[dict[str, Any]]:
        return [self._answer(index) for index in range(len(self._files))]

    def ask(self, order: dict[str, Any]) -> list[dict[str, Any]]:
        """The same of all."""
        return self.each([order] * len(self._files))

    def one(self, index: int, order: dict[str, Any]) -> dict[str, Any]:
        """Only of one."""
        self._say(index, order)
        return self._answer(index)

    def each(self, orders: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Of each its own."""
        for index, order in enumerate(orders):
            self._say(index, order)
        return self._answers()

    def _say(self, index: int, order: dict[str, Any]) -> None:
        self._files[index].write(json.dumps(order) + "\n")
        self._files[index].flush()

    def _answer(self, index: int) -> dict[str, Any]:
        line = self._files[index].readline()
        if not line:
            raise SystemExit(f"process {index} of {len(self._files)} ended early")
        answer: dict[str, Any] = json.loads(line)
        return answer


class Orders:
    """The other end."""

    def __init__(self, task: dict[str, Any]) -> None:
        self._file = socket.create_connection(("127.0.0.1", task["control"]), TOO_LONG).makefile("rw")

    def tell(self, what: dict[str, Any]) -> None:
        self._file.write(json.dumps(what) + "\n")
        self._file.flush()

    def hear(self) -> dict[str, Any]:
        order: dict[str, Any] = json.loads(self._file.readline() or "null")
        return order
