"""After os.fork(): NNG does not survive it, so every call in the child raises Forked, and both processes continue.

Each test runs in a Python of its own: a fork of pytest would run the remaining tests twice.
"""

from __future__ import annotations

import pytest

from tests.protocols.wires import WAIT, said

# every kind of socket, connected, with something sent; `ended(pid)` returns a child's exit code and duration
OPEN = """
    import asyncio, os, sys, threading, time
    import trio
    from nngkit.errors import Closed, Forked
    from nngkit.protocols import *

    if threading.active_count() == 1:
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # of fork() with threads: it is what this is about

    kinds = (Pair0, Pair1, Req, Rep, Push, Pull, Bus, Pub, Sub, Surveyor, Respondent)
    opposite = dict(zip(kinds, (Pair0, Pair1, Rep, Req, Pull, Push, Bus, Sub, Pub, Respondent, Surveyor)))
    options = {Sub: {"topics": ""}}
    ours = {kind: kind(listen="tcp://127.0.0.1:0", **options.get(kind, {})) for kind in kinds}
    theirs = {kind: opposite[kind](dial=ours[kind].address, **options.get(opposite[kind], {})) for kind in kinds}
    everything = [*ours.values(), *theirs.values()]
    for sock in everything:
        sock.wait_for_peers(1, 15)
    push, pull, req, rep = ours[Push], theirs[Push], ours[Req], theirs[Req]
    push.send(b"before")

    def ended(pid, seconds=3.0):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.005)
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        return "still there"

    def works():
        push.send(b"after")
        assert [pull.recv(timeout=15), pull.recv(timeout=15)] == [b"before", b"after"]
        asking = threading.Thread(target=lambda: rep.recv(timeout=15).reply(b"answer"))
        asking.start()
        assert req.request(b"?", timeout=15) == b"answer"
        asking.join()
        for sock in everything:
            sock.close()
        return "the parent continues"
"""

CALLS = """
    asked = [threading.Thread(target=lambda: req.request(b"?", timeout=15)) for _ in range(2)]
    for thread in asked:
        thread.start()
    question, another = rep.recv(timeout=15), rep.recv(timeout=15)
    pipe = push.pipes[0]

    pid = os.fork()
    if pid == 0:
        def check(name, function, *arguments, **options):
            try:
                outcome = function(*arguments, **options)
            except Forked as error:
                assert "fork" in str(error), error
            except BaseException as error:
                print(f"{name}: {error!r}", flush=True)
            else:
                print(f"{name}: {outcome!r}", flush=True)

        methods = {
            "listen": ("tcp://127.0.0.1:0",), "dial": ("tcp://127.0.0.1:1",), "undial": ("",), "disconnect": (pipe,),
            "wait_for_peers": (5,), "send": (b"",), "send_many": ([b""],), "recv": (), "recv_many": (), "recv_msg": (),
            "recv_msgs": (),
            "subscribe": (b"",), "unsubscribe": (b"",), "request": (b"",), "survey": (b"",), "start": (b"",),
        }
        tasks = {
            "await_for_peers": (5,), "asend": (b"",), "asend_many": ([b""],), "arecv": (), "arecv_many": (),
            "arecv_msg": (), "arecv_msgs": (), "arequest": (b"",), "asurvey": (b"",), "astart": (b"",),
        }
        for sock in everything:
            where = type(sock).__name__
            for name, arguments in methods.items():
                if hasattr(sock, name):
                    check(f"{where}.{name}", getattr(sock, name), *arguments)
            for name, arguments in tasks.items():
                if hasattr(sock, name):
                    check(f"{where}.{name} in trio", trio.run, getattr(sock, name), *arguments)
                    async def awaited():
                        await getattr(sock, name)(*arguments)
                    check(f"{where}.{name} in asyncio", lambda: asyncio.run(awaited()))
            # the past stays readable, and closing works
            sock.stats, sock.pipes, sock.address if sock.addresses else None, repr(sock)
            assert sock.closed
            sock.drain(1)
            with sock:
                pass
            sock.close()
        check("reply", question.reply, b"!")
        check("areply", trio.run, another.areply, b"!")
        for kind in kinds:
            check(f"new {kind.__name__}", kind)
            check(f"new listening {kind.__name__}", kind, listen="tcp://127.0.0.1:0")
        sys.stdout.flush()
        os._exit(7)
    print("exit code", ended(pid, 15))
    question.reply(b"late")
    another.reply(b"late")
    for thread in asked:
        thread.join()
    print(works())
"""


def test_every_call_in_the_child_raises_forked_and_the_parent_continues() -> None:
    assert said(OPEN + CALLS, timeout=2 * WAIT).splitlines() == ["exit code 7", "the parent continues"]


LEAVING = {
    "os._exit": ("os._exit(7)", 7),
    "sys.exit": ("sys.exit(7)", 7),
    "sys.exit with all closed": ("[sock.close() for sock in everything], sys.exit(7)", 7),
    "sys.exit with all forgotten": ("everything.clear(), ours.clear(), theirs.clear(), sys.exit(7)", 7),
    "the end": ("leave = True", 0),
    "sys.exit after Forked": (
        "\n        try: pull.recv()\n        except Forked: sys.exit(7)",
        7,
    ),
    "sys.exit after a new socket": (
        "\n        try: Push(listen='tcp://127.0.0.1:0')\n        except Forked: sys.exit(7)",
        7,
    ),
    "sys.exit in the block of a socket": ("\n        with pull: sys.exit(7)", 7),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", LEAVING)
def test_the_child_exits_with_its_own_code_within_3_s(how: str) -> None:
    leaving, code = LEAVING[how]
    program = f"""
    pid = os.fork()
    leave = False
    if pid == 0:
        {leaving}
    if not leave:
        print("exit code", ended(pid))
        print(works())
"""
    # the child gets a copy of the output buffer, so it must be empty
    assert said(OPEN + program, timeout=2 * WAIT).splitlines() == [f"exit code {code}", "the parent continues"]


@pytest.mark.slow
def test_a_child_forked_while_threads_are_busy_exits() -> None:
    program = """
    over = threading.Event()

    def ask():
        while not over.is_set():
            req.request(b"?", timeout=15)

    def answer():
        for question in rep:
            question.reply(b"answer")

    def carry():
        while not over.is_set():
            theirs[Pull].send_many([b"x"] * 50)
            ours[Pull].recv_many(timeout=15)

    threads = [threading.Thread(target=target) for target in (ask, ask, answer, carry, carry)]
    for thread in threads:
        thread.start()
    codes = []
    for number in range(20):
        pid = os.fork()
        if pid == 0:
            raised = 0
            for sock in everything:
                try:
                    sock.wait_for_peers()
                except Forked:
                    raised += 1
            for function in (ours[Pull].recv, rep.recv, lambda: req.request(b"?"), lambda: push.send(b"x"), Push):
                try:
                    function()
                except Forked:
                    raised += 1
            sys.exit(raised)
        codes.append(ended(pid, 10))
    over.set()
    for thread in threads[:2]:
        thread.join()
    rep.close()
    ours[Pull].close()
    theirs[Pull].close()
    print(set(codes))
"""
    quiet = "    threading.excepthook = lambda _: None  # Closed, in the threads that carry\n"
    assert said(OPEN + quiet + program, timeout=2 * WAIT) == "{27}"  # 22 sockets and 5 functions


def test_a_child_of_a_process_with_tls_exits() -> None:
    program = """
    import trustme
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    tls = TLS(ca=authority.cert_pem.bytes(), cert=certificate.cert_chain_pems[0].bytes(),
              key=certificate.private_key_pem.bytes(), server_name="localhost")
    here = Push(listen=["tls+tcp://127.0.0.1:0", "wss://127.0.0.1:0/x"], tls=tls)
    there = Pull(dial=here.addresses, tls=tls)
    there.wait_for_peers(2, 15)
    everything += [here, there]
    pid = os.fork()
    if pid == 0:
        del here, there
        everything.clear()
        sys.exit(7)
    print("exit code", ended(pid))
    print(works())
"""
    assert said(OPEN + program, timeout=2 * WAIT).splitlines() == ["exit code 7", "the parent continues"]


def test_multiprocessing_by_fork_raises_forked_and_ends() -> None:
    program = """
    import multiprocessing

    def child():
        try:
            push.send(b"from the child")
        except Forked:
            sys.exit(7)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(10)
    print("exit code", process.exitcode)
    print(works())
"""
    assert said(OPEN + program, timeout=2 * WAIT).splitlines() == ["exit code 7", "the parent continues"]


@pytest.mark.parametrize("used", ["", "pynng.Pull0(listen='inproc://used').close()"], ids=["loaded", "used by pynng"])
def test_a_child_may_use_nng_if_its_parent_only_loaded_it(used: str) -> None:
    program = f"""
    import gc
    import multiprocessing
    import sys

    import pynng

    from nngkit.errors import Forked
    from nngkit.protocols import Pull, Push

    {used}
    gc.collect()  # a socket of pynng is in a cycle: found in a child, it closes there again, and NNG aborts it

    def child():
        try:
            with Pull(listen="tcp://127.0.0.1:0") as pull, Push(dial=pull.address) as push:
                push.send(b"hello")
                print(pull.recv(timeout=15).decode(), flush=True)
        except Forked:
            print("Forked", flush=True)

    for _ in range(2):
        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join(20)
        print("exit code", process.exitcode, flush=True)
    child()
"""
    expected = ["Forked" if used else "hello", "exit code 0"] * 2 + ["hello"]
    assert said(program, timeout=2 * WAIT).splitlines() == expected


def test_multiprocessing_by_spawn_works(tmp_path_factory: pytest.TempPathFactory) -> None:
    module = tmp_path_factory.mktemp("spawned") / "spawning.py"
    module.write_text(SPAWNING)
    program = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
    assert said(program, str(module), timeout=2 * WAIT).splitlines() == ["from the child", "exit code 0"]


SPAWNING = """
import multiprocessing
import sys

from nngkit.protocols import Pull, Push


def child(address):
    with Push(dial=address, linger=10) as push:
        push.send(b"from the child")


if __name__ == "__main__":
    with Pull(listen="tcp://127.0.0.1:0") as pull, Push(dial=pull.address) as own:
        own.wait_for_peers(1, 15)  # NNG is in use here
        process = multiprocessing.get_context("spawn").Process(target=child, args=(pull.address,))
        process.start()
        print(pull.recv(timeout=30).decode(), flush=True)
        process.join(15)
        print("exit code", process.exitcode)
"""
