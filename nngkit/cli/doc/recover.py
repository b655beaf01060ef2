"""`nngkit doc recover`: copy the intact parts of a damaged store into a new one."""

from __future__ import annotations

import argparse

from nngkit.cli.streams.output import json_line, out, picked
from nngkit.documents.store import recover


def run(arguments: argparse.Namespace) -> int:
    """Recover the store and report; return 1 if anything is missing."""
    report = recover(arguments.damaged, arguments.to)
    documents = [
        {"document": each.name, **picked(each, "kept lost left_out saved saved_lost why")} for each in report.documents
    ]
    fields = {"event": "recovered", "from": report.path, **picked(report, "to whole unaccounted same_origin")}
    out(json_line({**fields, "documents": documents}) if arguments.json else str(report))
    return 0 if report.whole else 1
