"""When a pipe's removal is announced, its remote address is no longer available.

pynng 0.9.0 (NNG 1.11.0). The callback added by `add_post_pipe_remove_cb`.
Expected: the callback can say which peer left.
Observed: asking for `remote_address` raises.
"""

import threading

import pynng
from _harness import done, url_of

connected, left = [], []
event = threading.Event()


def address(pipe):
    try:
        return str(pipe.remote_address)
    except Exception as error:
        return repr(error)


def gone(pipe):
    left.append(address(pipe))
    event.set()


with pynng.Pair0() as pair:
    pair.add_post_pipe_connect_cb(lambda pipe: connected.append(address(pipe)))
    pair.add_post_pipe_remove_cb(gone)
    pair.listen("tcp://127.0.0.1:0")
    with pynng.Pair0(dial=url_of(pair)):
        while not connected:
            pass
    event.wait(10)
done(f"on connect {connected}, on removal {left}", left and "127.0.0.1" not in left[0])
