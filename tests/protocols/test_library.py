"""NNG's library by cffi."""

from __future__ import annotations

import pytest

from tests.protocols.wires import said

FIRST_USE = """
import gc, os, threading, time
from nngkit.protocols._nng.library import ffi

def use(start):
    start.wait()
    where = ffi.new("nng_sockaddr *")
    where.s_in.sa_port, where.s_in6.sa_port

def both(allocations):
    start = threading.Barrier(2)
    threads = [threading.Thread(target=use, args=(start,)) for _ in range(2)]
    gc.callbacks.append(lambda *_: time.sleep(0.002))  # the other thread runs
    gc.collect()
    gc.set_threshold(allocations)
    for each in threads:
        each.start()
    for each in threads:
        each.join()

ended = []
for allocations in range(1, 60):
    child = os.fork()
    if child == 0:
        both(allocations)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        ended.append(allocations)
print(ended)
"""


@pytest.mark.slow
def test_garbage_that_is_collected_while_two_threads_use_a_type_first_ends_no_process() -> None:
    """Ended 36 of 59 processes under Python 3.11, which collects garbage in the midst of calls into C."""
    assert said(FIRST_USE).strip() == "[]"
