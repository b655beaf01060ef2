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
             formats               the choice between them, and opening

Requires an extra: `pip install 'nngkit[iceberg]'` or `'nngkit[delta]'`. docs/lakehouse.md says what was tried.
"""

from typing import TYPE_CHECKING

from nngkit.lazy import lazily

if TYPE_CHECKING:
    from nngkit.lakehouse.exporting import Exported, export
    from nngkit.lakehouse.formats import open_table
    from nngkit.lakehouse.table import Snapshot, Table

__all__ = ["Exported", "Snapshot", "Table", "export", "open_table"]

if not TYPE_CHECKING:  # with it in sight, a type checker accepts any name
    __getattr__, __dir__ = lazily(
        __name__, {"exporting": "Exported export", "formats": "open_table", "table": "Snapshot Table"}
    )
