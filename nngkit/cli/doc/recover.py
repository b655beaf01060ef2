"""`nngkit doc recover`: copy the intact parts of a damaged store into a new one."""

from __future__ import annotations

import argparse

from nngkit.cli.streams.output import json_line, out, picked
from nngkit.documents.store import recover


def run(arguments: argparse.Namespace) -> int:
    """Recover the store and report; return 1 if anything is missing."""
    report = recover(arguments.damaged, arguments.to)
    if not arguments.json:
        out(str(report))
        return 0 if report.whole else 1
    out(
        json_line(
            {
                "event": "recovered",
                "from": report.path,
                "to": report.to,
                **picked(report, "whole unaccounted same_origin"),
                "documents": [
                    {"document": each.name, **picked(each, "kept lost left_out saved saved_lost why")}
                    for each in report.documents
                ],
            }
        )
    )
    return 0 if report.whole else 1
