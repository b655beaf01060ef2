"""Lines that a node's commands print: its life, the members, messages and jobs. docs/schemas/cluster-node.json.

::

    2026-01-31T12:00:00.123Z  render  a  listens at tcp://127.0.0.1:7000
    2026-01-31T12:00:00.345Z  render  a  is host of term 1
    2026-01-31T12:00:04.567Z  render  a  w1 joined

Lines go through a LineWriter of bytes: a message is printed as it came, whatever its encoding.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from nngkit.cli.streams.line_writer import LineWriter, to_stdout
from nngkit.cli.streams.output import as_text, json_line, picked, utc
from nngkit.cli.streams.stderr import escaped
from nngkit.protocols.own_host import is_everywhere

if TYPE_CHECKING:
    from nngkit.cluster import ClusterGap, ClusterMessage, Endpoint, JobRun

QUEUE: Final = 16 << 20  # bytes of lines queued for a slow reader; further ones are dropped
TRANSPARENT: Final = "latin-1"  # each byte is one character: text of it passes the writer unchanged


class NodeLines:
    """Lines of one node, as text or JSON. `tell` gets lines of its life as text, if those are not data.

    Args:
        cluster: Name of the cluster.
        as_json: Print JSON.
        tell: Function for the text of the node's life; None: standard output.
    """

    def __init__(self, cluster: str, as_json: bool, tell: Callable[[str], None] | None = None) -> None:
        self._cluster = cluster
        self._json = as_json
        self._tell = tell
        self._node_id = ""
        encoding = to_stdout(0)._encoding  # that of the terminal
        self._encoding = encoding
        self.writer = LineWriter(1, QUEUE, TRANSPARENT)

    def begin(self, node: Endpoint, listen: str | None) -> None:
        """Print lines of this node from now on; the first one says where it listens, if it does, and is reached."""
        self._node_id = node.id
        if node.address is not None:
            everywhere = listen is not None and is_everywhere(listen)
            text = f"listens at {listen}, others dial {node.address}" if everywhere else f"listens at {node.address}"
            self.event("listening", text, address=node.address)

    def event(self, event: str, text: str, **fields: Any) -> None:
        """Print what has happened to the node."""
        now, text = time.time(), escaped(text)
        if self._json:
            self._put_json(event, now, fields)
        elif self._tell is not None:
            self._tell(f"{self._node_id} {text}")
        else:
            self._put(
                f"{utc(now)}  {self._cluster}  {self._node_id}  {text}".encode(self._encoding, "backslashreplace")
            )

    def added(self, member: str) -> None:
        """Print that a node has joined."""
        self.event("added", f"{member} joined", member=member)

    def removed(self, member: str) -> None:
        """Print that a node has left."""
        self.event("removed", f"{member} left", member=member)

    async def message(self, message: ClusterMessage) -> None:
        """Print a message, and wait until it is written: a slow reader slows down the origin's next one."""
        if self._json:
            body, encoding = as_text(message.body)
            fields = {**picked(message, "origin epoch sequence kind direct"), "body": body, "encoding": encoding}
            self._put_json("message", time.time(), fields)
        else:
            self._put(message.body)
        await self.writer.finish(math.inf)

    def gap(self, gap: ClusterGap) -> None:
        """Print that messages will not come."""
        self.event(
            "gap",
            f"misses messages {gap.first} to {gap.last} of {gap.origin}: {gap.reason}",
            **picked(gap, "origin epoch first last reason"),
        )

    @contextmanager
    def job(self, job: JobRun) -> Iterator[None]:
        """With JSON, print a line about the try of a job that the block does; an exception is its failure."""
        began, started = time.time(), time.monotonic()
        ok, error = False, None
        try:
            yield
            ok = True
        except Exception as failed:
            error = str(failed)
            raise
        finally:
            if self._json:
                fields = {
                    "id": job.id,
                    "kind": job.kind,
                    "try": job.try_number,
                    "seconds": round(time.monotonic() - started, 6),
                    "ok": ok,
                    "error": error,
                }
                self._put_json("job", began, fields)

    def _put_json(self, event: str, now: float, fields: dict[str, Any]) -> None:
        head = {"time": utc(now), "cluster": self._cluster, "node": self._node_id, "event": event}
        self._put(json_line({**head, **fields}).encode("utf-8", "backslashreplace"))

    def _put(self, line: bytes) -> None:
        self.writer.put(line.decode(TRANSPARENT))
