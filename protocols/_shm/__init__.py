"""Bodies in shared memory between processes of one machine, for ``shm:///path``. Linux only, experimental.

::

    slots.py      which slot of which segment is free (pure)
    formats.py    bytes of the greeting, the side channel and the frames (pure)
    memory.py     sealed memfds, their mappings, copies without the interpreter's lock
    link.py       side channel of one connection: segments and releases
    sharing.py    the slots of one socket, and their messages
    machine.py    SP with frames that refer to shared memory
    joining.py    listening and dialing

The connection is SP over a Unix socket, as on ipc. Before NNG gets it, the dialer passes one end of a second socket,
the side channel. A large body is written into a slot of a segment (a sealed memfd), and the frame only names it. The
sender does all bookkeeping in its own memory: a slot is used again once every reader has released it. A reader that
ends without that leaves its slots abandoned: they are never used again, only freed. The kernel frees a segment with its
last mapping, so killed processes leave nothing, and there are no names.
"""
