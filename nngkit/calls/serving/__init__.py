r"""Calls at a server: one request from the socket to its reply.

::

    socket --> workers (whose turn it is) --> with_codec --> methods (may it run?) --> refused, or queued, or run
                                          \-> without_codec --> run                      |
    socket <-- replies <-- result, or failures (an exception as an error) <-- handler <--+--> streams

    running         all of it, for server.py
    workers         tasks that receive in turn, and run calls
    progress        what a worker has in hand; what is counted of calls and their times
    methods         handlers by name, and which calls are let in (permits)
    with_codec      requests that are messages: calls, cancellations, questions to the server itself
    without_codec   requests that are bodies
    streams         replies in parts, which callers fetch
    replies         sent at once, together, or once there is room
    failures        exceptions of handlers as error replies
    health_check    asks the program whether it is healthy
"""
