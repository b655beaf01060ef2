"""REQ/REP: ten requests over two servers come out five and five, and nobody had to say so.

::

    python3 examples/reqrep.py

prints::

    request 0: 0 squared is 0
    request 1: 1 squared is 1
    request 2: 2 squared is 4
    request 3: 3 squared is 9
    request 4: 4 squared is 16
    request 5: 5 squared is 25
    request 6: 6 squared is 36
    request 7: 7 squared is 49
    request 8: 8 squared is 64
    request 9: 9 squared is 81
    server A answered 5, server B answered 5

One REQ socket dials both servers and takes them in turn: next is the one that has been without work for longest. If a
server dies with a request in hand, the socket sends the same request to the other, until the request's timeout; so a
server must bear being asked twice. Requests need not wait for each other either: any number of ``request`` calls may be
under way on one socket, from threads or from tasks.
"""

import time
from concurrent.futures import ThreadPoolExecutor

from nngkit.protocols import Rep, Req


def serve(server: Rep) -> int:
    """Answer until the socket is closed; how many requests that were."""
    answered = 0
    for request in server:
        number = int(request.body)
        time.sleep(0.01)  # hard work
        request.reply(str(number * number).encode())
        answered += 1
    return answered


with ThreadPoolExecutor() as threads:
    with Rep(listen="tcp://127.0.0.1:0") as a, Rep(listen="tcp://127.0.0.1:0") as b:
        counts = [threads.submit(serve, server) for server in (a, b)]
        with Req(dial=[a.address, b.address]) as client:
            client.wait_for_peers(2, timeout=5)
            for number in range(10):
                answer = client.request(str(number).encode(), timeout=5)
                print(f"request {number}: {number} squared is {answer.decode()}")
    print("server A answered {}, server B answered {}".format(*(count.result() for count in counts)))
