"""Dialing an ipc path that is too long for the system succeeds, and tries again for ever.

pynng 0.9.0 (NNG 1.11.0). A Unix socket's path has 107 bytes at most; NNG itself takes 127.
Expected: NNG_EADDRINVAL, as for listening.
Observed: listening at 108 bytes fails, dialing (without blocking) reports success.
"""

import pynng
from _harness import attempt, done

url = "ipc:///tmp/" + "p" * (108 - len("/tmp/"))
with pynng.Pair0() as one, pynng.Pair0() as other:
    listened, dialed = attempt(one.listen, url), attempt(other.dial, url, block=False)
failed = [isinstance(each, pynng.NNGException) for each in (listened, dialed)]
done(f"108 bytes: listen {listened!r}, dial {'failed' if failed[1] else 'succeeded'}", failed == [True, False])
