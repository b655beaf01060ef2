"""Spark jobs on a journal: each takes DataFrames and returns one, and knows no file and no command.

==============  ========================================================================================================
availability    uptime of providers, flaps, and response times of surveys
traffic         rates, sizes, silences and latency by topic and peer; slowest providers; senders and their topics
documents       CRDT updates into snapshots; a document as of a time; edits by author
cluster         work by worker and kind, queue times, retries and dead letters of clusters; each term's host
quality         duplicates, lost ranges, clock skew
report          all of these as one HTML page
==============  ========================================================================================================

``rows`` are those of `format("nng")`, headers included; headers.py decodes these. The first line of a job that cannot
be streamed says "batch only".
"""
