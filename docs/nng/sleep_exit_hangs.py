"""An interpreter that exits while an nng_sleep_aio is pending hangs for ever in NNG's cleanup.

pynng 0.9.0 (NNG 1.11.0). pynng registers nng_fini with atexit.
Expected: the process ends with its own exit code, at once.
Observed: it does not end, not even when the sleep is over. Cancelling the sleep before the exit avoids it.
"""

import signal
import subprocess
import sys

from pynng import ffi, lib

signal.alarm(30)  # ends a run that hangs

if len(sys.argv) > 2 and sys.argv[1] == "child":
    slot = ffi.new("nng_aio **")
    assert not lib.nng_aio_alloc(slot, ffi.NULL, ffi.NULL)
    lib.nng_sleep_aio(1000, slot[0])
    if sys.argv[2] == "cancelled":
        lib.nng_aio_cancel(slot[0])
        lib.nng_aio_wait(slot[0])
    sys.exit(0)

found = {}
for how in ("pending", "cancelled"):
    child = subprocess.Popen([sys.executable, __file__, "child", how], stderr=subprocess.DEVNULL)
    try:
        found[how] = f"exit code {child.wait(4)}"
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        found[how] = "still there after 4 s"
print("exit with a sleep of 1 s: " + ", ".join(f"{how}: {what}" for how, what in found.items()))
sys.exit(0 if "still" in found["pending"] else 1)
