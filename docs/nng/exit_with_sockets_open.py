"""An interpreter that exits with sockets open may hang in NNG's cleanup, or die.

pynng 0.9.0 (NNG 1.11.0). pynng registers nng_fini with atexit.
Expected: the process ends with its own exit code.
Observed: some hang, for as long as one waits. By chance; argument: SECONDS to try for (15).
"""

import subprocess
import sys
import threading
import time
from collections import Counter

import pynng

if len(sys.argv) > 1 and sys.argv[1] == "child":
    kept = []
    for one, other in (
        (pynng.Pair0, pynng.Pair0),
        (pynng.Push0, pynng.Pull0),
        (pynng.Rep0, pynng.Req0),
        (pynng.Bus0, pynng.Bus0),
        (pynng.Surveyor0, pynng.Respondent0),
    ):
        for scheme, path in (("tcp", ""), ("ws", "/x")):
            listener = one(listen=f"{scheme}://127.0.0.1:0{path}")
            dialer = other(dial=f"{scheme}://{listener.listeners[0].local_address}{path}")
            for each in (listener, dialer):
                each.add_post_pipe_remove_cb(lambda pipe: None)
            kept += [listener, dialer]
    threading.Thread(target=kept[0].recv, daemon=True).start()
    kept[4].send(b"unread")
    sys.exit(0)

seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 15.0
end, endings = time.monotonic() + seconds, Counter()
while time.monotonic() < end:
    child = subprocess.Popen([sys.executable, __file__, "child"], stderr=subprocess.DEVNULL)
    try:
        endings[child.wait(3)] += 1
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
        endings["hang"] += 1
print(f"{endings.total()} exits: " + ", ".join(f"{how}: {count}" for how, count in endings.items()))
sys.exit(0 if set(endings) != {0} else 1)
