"""An interpreter that exits with sockets open may hang in NNG's cleanup, or die.

pynng 0.9.0 (NNG 1.11.0). pynng registers nng_fini with atexit.
Expected: the process ends with its own exit code.
Observed: some hang, for as long as one waits. By chance; argument: SECONDS to try for (15).
"""

import sys
import threading
import time
from collections import Counter

import pynng
from _harness import CHILD, child, done, failed, seconds_to_try

if CHILD is not None:
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

end, endings = time.monotonic() + seconds_to_try(15.0), Counter()
while time.monotonic() < end:
    endings[child(seconds=3)[0]] += 1
counts = ", ".join(f"{how}: {count}" for how, count in endings.items())
done(f"{endings.total()} exits: {counts}", any(map(failed, endings)))
