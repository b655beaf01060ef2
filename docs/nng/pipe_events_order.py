"""The events of a pipe may come in the wrong order: connected after removed.

pynng 0.9.0 (NNG 1.11.0). Peers that connect and leave at once; the three callbacks of pynng.
Expected: for each pipe pre-connect, post-connect, post-remove.
Observed: another order for some. By chance; argument: SECONDS to try for (8).
"""

import socket
import struct
import threading
import time
from collections import Counter, defaultdict

import pynng
from _harness import done, hello, port_of, seconds_to_try

end = time.monotonic() + seconds_to_try(8.0)
events = defaultdict(list)


def come_and_go(port):
    while time.monotonic() < end:
        with socket.create_connection(("127.0.0.1", port)) as peer:
            peer.sendall(hello(112))
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


with pynng.Bus0() as bus:
    bus.add_pre_pipe_connect_cb(lambda pipe: events[pipe.id].append("pre"))
    bus.add_post_pipe_connect_cb(lambda pipe: events[pipe.id].append("post"))
    bus.add_post_pipe_remove_cb(lambda pipe: events[pipe.id].append("remove"))
    bus.listen("tcp://127.0.0.1:0")
    peers = [threading.Thread(target=come_and_go, args=(port_of(bus),)) for _ in range(4)]
    for peer in peers:
        peer.start()
    for peer in peers:
        peer.join()
    time.sleep(0.5)
orders = Counter(" ".join(order) for order in events.values())
found = ", ".join(f"{order}: {count}" for order, count in orders.most_common(6))
done(f"{len(events)} pipes: {found}", set(orders) - {"pre post remove"})
