"""What Spark is asked of a journal: each job takes DataFrames and returns one, and knows no file and no command.

==============  ========================================================================================================
availability    who was up when, flaps, and how fast surveys were answered
traffic         rates, sizes, silences and latency by topic and peer; the slowest; who talks to whom
documents       CRDT updates into snapshots; a document as it was; edits by author
quality         duplicates, lost ranges, clocks that disagree
report          one HTML page of all that
==============  ========================================================================================================

``rows`` are those of `format("nng")`, headers included; headers.py takes them apart. A job that is no sensible stream
says so in its first line.
"""
