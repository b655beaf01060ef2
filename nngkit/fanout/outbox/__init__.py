"""An outbox: messages on disk until their receiver has them.

::

    pure    entries         what an outbox sends, and the check for duplicates
    shells  outbox (store)  sends in order over PUSH or REQ, from a log on disk
"""
