"""A socket name of more than 63 bytes ends the process.

pynng 0.9.0 (NNG 1.11.0). The option `socket-name`; NNG copies it into 64 bytes.
Expected: NNG_EINVAL.
Observed: the process ends by a signal.
"""

import os

import pynng
from _harness import CHILD, child, done, failed

if CHILD:
    with pynng.Pair0(name="n" * int(CHILD[0]), listen="tcp://127.0.0.1:0"):
        pass
    os._exit(0)

codes = {length: child(length)[0] for length in (63, 64, 65, 100, 1000)}
done("; ".join(f"{length} bytes: exit code {code}" for length, code in codes.items()), any(map(failed, codes.values())))
