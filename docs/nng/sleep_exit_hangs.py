"""An interpreter that exits while an nng_sleep_aio is pending hangs for ever in NNG's cleanup.

pynng 0.9.0 (NNG 1.11.0). pynng registers nng_fini with atexit.
Expected: the process ends with its own exit code, at once.
Observed: it does not end, not even when the sleep is over. Cancelling the sleep before the exit avoids it.
"""

import sys

from _harness import CHILD, child, done, new_aio
from pynng import lib

if CHILD:
    aio = new_aio()
    lib.nng_sleep_aio(1000, aio)
    if CHILD[0] == "cancelled":
        lib.nng_aio_cancel(aio)
        lib.nng_aio_wait(aio)
    sys.exit(0)

found = {}
for how in ("pending", "cancelled"):
    code, _ = child(how, seconds=4)
    found[how] = "still there after 4 s" if code == "hang" else f"exit code {code}"
endings = ", ".join(f"{how}: {what}" for how, what in found.items())
done(f"exit with a sleep of 1 s: {endings}", "still" in found["pending"])
