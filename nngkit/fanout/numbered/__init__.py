"""Numbered messages: publishers, and subscribers that learn what they missed.

::

    pure    lag                          numbers of messages; gaps, duplicates, restarts
            backlog (keeping, messages)  what a subscriber has not read; the last message of each topic
            joining                      recorded and live messages, each once
    shells  publisher                    numbers, heartbeats, snapshots, subscribers' positions
            subscriber (synchronizing)   events in order; snapshot, then live
            following                    a journal from an offset on, then a SUB
"""
