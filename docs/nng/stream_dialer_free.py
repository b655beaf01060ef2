"""A stream dialer that is closed while its address is being looked up, and freed, ends the process.

pynng 0.9.0 (NNG 1.11.0). tcp_dialer_free stops the aio of its lookup, and frees it. While the lookup is completing,
that aio has no cancel function any more and its task is not queued yet: nni_aio_stop then sets it idle
(nni_task_abort), does not wait, and the resolver's thread queues a task that is freed. The same race is in the aio of
the connection.
Expected: nng_stream_dialer_free waits for the dialer's own operations.
Observed: SIGABRT in a thread of NNG, with "panic: appending node already on a list or not inited" or "panic:
pthread_mutex_lock: Invalid argument". By chance; argument: SECONDS to try for (60).
"""

import random

from _harness import dialer_to, race
from pynng import lib


def dial_and_close(aio):
    dialer = dialer_to("tcp://127.0.0.1:1")
    lib.nng_stream_dialer_dial(dialer, aio)
    for _ in range(random.randrange(40)):
        pass
    lib.nng_stream_dialer_close(dialer)
    lib.nng_aio_wait(aio)
    lib.nng_stream_dialer_free(dialer)


race(dial_and_close, threads=4)
