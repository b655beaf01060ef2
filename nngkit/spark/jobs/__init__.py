"""Spark jobs on a journal: each takes DataFrames and returns one, and knows no file and no command.

==============  ========================================================================================================
availability    uptime of providers, flaps, and response times of surveys
traffic         rates, sizes, silences and latency by topic and peer; slowest providers; senders and their topics
sessions        sessions of peers; peers that a journal has not seen before
anomalies       windows with far more or fewer messages than a week before
requests        requests joined with their replies; latency of services
dependencies    which node calls, publishes or sends to which
schemas         kinds of values and fields of maps, by topic; cbor_text: CBOR as JSON text, also in SQL
documents       CRDT updates into snapshots; a document as of a time; edits by author
cluster         work by worker and kind, queue times, retries and dead letters of clusters; each term's host
quality         duplicates, lost ranges, clock skew
report          most of these as one HTML page
==============  ========================================================================================================

``rows`` are those of `format("nng")`, headers included; headers.py decodes these. The first line of a job that cannot
be streamed says "batch only". `documents` is more: its workers run compaction.py with packing.py, columns.py,
recorded_order.py and causal.py, which know no Spark, and snapshots.py keeps a folder of results.
"""
