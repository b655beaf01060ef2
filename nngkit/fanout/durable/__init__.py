"""Durable consumers: a server that delivers a journal's records, and its clients.

::

    pure    partition                  records in flight of a named consumer: ack, redelivery, give up
            messages                   requests and replies between a consumer and its server
    shells  server (named, feed, file) serves a journal to named consumers; their state on disk
            consumer (delivery)        receives records
            acknowledgements           gathers and sends them
"""
