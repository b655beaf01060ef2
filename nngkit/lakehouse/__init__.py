"""A journal's sealed segments as an Apache Iceberg or a Delta Lake table, which other engines read.

::

    from nngkit.lakehouse import export, open_table

    export("journal", "lake/events", "iceberg")              # each call that finds news is one snapshot
    table = open_table("lake/events")
    table.snapshots()                                        # with the offsets up to which each goes
    table.arrow({0: 5000}).to_table()                        # as of an offset: records below it

The table's metadata is the only state: it says which offsets were exported, so a killed export is repeated or not as it
was committed or not. Segments are linked into the table, or referred to in place, and never rewritten.

::

    pure     plan                  which files a commit adds and removes, by offset ranges
    shells   exporting  placing    from a journal to a table; the lock, and segments as files of a table
             iceberg  delta        one table format each, behind the interface in `table`
             table                 reading back: snapshots, their files, and their rows as of an offset

Requires an extra: `pip install 'nngkit[iceberg]'` or `'nngkit[delta]'`. docs/lakehouse.md says what was tried.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nngkit.lakehouse.exporting import Exported, export
    from nngkit.lakehouse.table import Snapshot, Table, open_table

__all__ = ["Exported", "Snapshot", "Table", "export", "open_table"]

_LATE = {  # name -> module: importing the libraries of a table format takes up to seconds
    **dict.fromkeys(("Exported", "export"), "exporting"),
    **dict.fromkeys(("Snapshot", "Table", "open_table"), "table"),
}


if not TYPE_CHECKING:  # a type checker that sees `__getattr__` accepts any name

    def __getattr__(name: str) -> object:
        """Import a public name on first use."""
        module = _LATE.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found: object = getattr(import_module(f"{__name__}.{module}"), name)
        globals()[name] = found
        return found
