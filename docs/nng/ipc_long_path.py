"""Dialing an ipc path that is too long for the system succeeds, and tries again for ever.

pynng 0.9.0 (NNG 1.11.0). A Unix socket's path has 107 bytes at most; NNG itself takes 127.
Expected: NNG_EADDRINVAL, as for listening.
Observed: listening at 108 bytes fails, dialing (without blocking) reports success.
"""

import os
import signal

import pynng

signal.alarm(30)  # ends a run that hangs

url = "ipc:///tmp/" + "p" * (108 - len("/tmp/"))
outcome = []
for way in (lambda pair: pair.listen(url), lambda pair: pair.dial(url, block=False)):
    with pynng.Pair0() as pair:
        try:
            way(pair)
            outcome.append("no error")
        except pynng.NNGException as error:
            outcome.append(repr(error))
print(f"108 bytes: listen {outcome[0]}, dial {outcome[1]}", flush=True)
os._exit(0 if outcome[0] != "no error" == outcome[1] else 1)  # not sys.exit: NNG's cleanup at exit may hang
