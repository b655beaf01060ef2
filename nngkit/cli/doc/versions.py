"""`nngkit doc versions`: list the saved versions of a document, oldest first."""

from __future__ import annotations

import argparse

from nngkit.cli.doc.log import as_text, version_fields
from nngkit.cli.doc.opening import stored
from nngkit.cli.streams.output import json_line, out
from nngkit.cli.streams.stderr import escaped


def run(arguments: argparse.Namespace) -> int:
    """Print a line for each version."""
    with stored(arguments.store) as store:
        saved = store.versions(arguments.name)
    for each in saved:
        fields = version_fields(each)
        out(json_line(fields) if arguments.json else escaped(as_text(fields)))
    return 0
