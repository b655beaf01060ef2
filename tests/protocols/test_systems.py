"""Other systems: what only Linux has is removed from the standard library of a child process before it imports nngkit.

NNG is still that of Linux here, and so is trio, which keeps its epoll.
"""

import pytest

from tests.protocols.wires import said

LACKS = {
    "macOS": [
        "select.epoll",
        "os.sched_getaffinity",
        "os.eventfd",
        "os.eventfd_read",
        "os.eventfd_write",
        "os.EFD_CLOEXEC",
    ],
    "Windows": ["os.fork", "os.register_at_fork", "select.poll", "signal.pthread_sigmask"],
}
LACKS["Windows"] += [*LACKS["macOS"], *(f"signal.SIG{name}" for name in ("BUS", "SYS", "TRAP", "USR1", "HUP"))]

PROGRAM = """
    import asyncio, os, select, signal, sys, threading

    epoll = select.epoll
    for name in sys.argv[2:]:
        module, _, attribute = name.partition(".")
        delattr(sys.modules[module], attribute)

    from nngkit.protocols import Pull, Push

    select.epoll = epoll  # for trio
    import trio

    messages = [b"%d" % number for number in range(300)]

    with Pull(listen=sys.argv[1], recv_timeout=20) as pull, Push(dial=pull.address) as push:

        async def receive():
            return [await pull.arecv() for _ in messages]

        ways = (
            lambda: [pull.recv() for _ in messages],
            lambda: trio.run(receive),
            lambda: asyncio.run(receive()),
        )
        for way in ways:
            threading.Timer(0.03, push.send_many, [messages]).start()  # the receiver waits by then
            print(way() == messages)
        print(not any(one.polled for sock in (pull, push) for one in sock._state.joined()))
"""


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:0", "inproc://systems"])
@pytest.mark.parametrize("system", LACKS)
def test_messages_pass_without_features_that_another_system_lacks(system: str, address: str) -> None:
    assert said(PROGRAM, address, *LACKS[system]).split() == ["True"] * 4
