"""Outputs of `nngkit device` for the messages that pass: a file, a PUB socket, a journal."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from nngkit.cli.streams.output import as_json, json_line, picked, utc

if TYPE_CHECKING:
    import argparse

    from nngkit.cli.streams.line_writer import LineWriter
    from nngkit.devices import TappedMessage
    from nngkit.journal import Recorder
    from nngkit.protocols import TLS

Tap = Callable[["TappedMessage"], None]


@asynccontextmanager
async def opened(
    arguments: argparse.Namespace, records: LineWriter | None, tls: TLS | None
) -> AsyncIterator[tuple[Tap | None, str]]:
    """Open the outputs named in `arguments`; return the tap for all of them, None if there is none, and their names."""
    from nngkit.journal import Recorder
    from nngkit.protocols import Pub

    taps: list[Tap] = []
    said = ""
    async with AsyncExitStack() as stack:
        if records is not None:
            taps.append(lambda passed: records.put(json_line(passed_fields(passed, time.time()))))
        if arguments.tap:
            pub = await stack.enter_async_context(Pub(listen=arguments.tap, linger=arguments.linger, tls=tls))
            said = f"; taps (Pub) listens at {', '.join(pub.addresses)}"
            taps.append(lambda passed: pub.send(f"{passed.side} {passed.what} ".encode() + passed.body))
        if arguments.record is not None:
            recorder = await stack.enter_async_context(Recorder(arguments.record))
            said += f"; records in {arguments.record}"
            taps.append(lambda passed: _record(recorder, arguments.kind, passed))
        yield (None if not taps else taps[0] if len(taps) == 1 else lambda passed: _all(taps, passed)), said


def _all(taps: list[Tap], passed: TappedMessage) -> None:
    for tap in taps:
        tap(passed)


def _record(recorder: Recorder, kind: str, passed: TappedMessage) -> None:
    """Queue a record, dropped and counted by the recorder while the disk is slow: forwarding comes first."""
    number = None if passed.number is None else [("number", passed.number.to_bytes(8, "big"))]
    recorder.put(
        passed.body, topic=passed.side, protocol=kind, key=passed.what.encode(), headers=number, peer=passed.peer
    )


def passed_fields(passed: TappedMessage, at: float) -> dict[str, Any]:
    """Return a record of `--capture`; docs/schemas/device-capture.json."""
    return {
        "time": utc(at),
        **picked(passed, "side what number peer"),
        "size": len(passed.body),
        "data": as_json(passed.body),
    }
