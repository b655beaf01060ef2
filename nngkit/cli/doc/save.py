"""`nngkit doc save`: save the current content of a document as a named version."""

from __future__ import annotations

import argparse

from nngkit.cli.doc.log import as_text, version_fields
from nngkit.cli.doc.opening import found, in_trio, opened
from nngkit.cli.streams.output import json_line, out
from nngkit.errors import ConfigError


def run(arguments: argparse.Namespace) -> int:
    """Synchronize with the named peers, if any, and save the version."""
    if arguments.store is None:
        raise ConfigError("--store", "is required: a version is kept in a store")

    async def work() -> None:
        async with opened(arguments) as peer:
            document = await found(peer, arguments.name, arguments)
            fields = version_fields(await document.save_version(arguments.version))
            out(json_line(fields) if arguments.json else as_text(fields))

    return in_trio(work)
