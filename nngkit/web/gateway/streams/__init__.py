"""Durable Streams over HTTP: topics of a journal are read, and streams in a journal of the gateway's own are written.

::

    routes.py      what the gateway answers below /streams and /topics
    writing.py     PUT, POST and DELETE of a stream
    reading.py     GET and HEAD: catch-up, long polls and server-sent events, of a stream and of a topic
    store.py       streams in a partition of a journal, which it owns
    topics.py      topics of a journal that others write
    ledger.py      what the streams are after each change, and which change may follow
    asked.py       the headers of requests
    offsets.py     offsets and cursors

asked, ledger and offsets are pure. The protocol is that of https://github.com/durable-streams/durable-streams.
The gateway imports `routes` once it is asked for, as the journal is an extra of nngkit. docs/gateway.md.
"""
