"""A real resolver whose DNS server never answers, in a network namespace: nothing waits for it, and nothing crashes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from textwrap import dedent

import pytest

from tests.hosts import Hosts, hosts
from tests.protocols.wires import ROOT, WAIT

__all__ = ["hosts"]

SERVER = "127.0.0.9"
SILENT = f"""
    import gc, os, random, socket, sys, threading, time, warnings
    from nngkit.protocols import Pull, Push

    warnings.simplefilter("ignore", ResourceWarning)
    dns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)  # takes questions
    dns.bind(("{SERVER}", 53))
"""
ENDS = {
    "close": "dead.close()",
    "abandoned": "del dead; gc.collect()",
    "left open": "pass",
}
AT_ONCE = """
    began = time.monotonic()
    dead = Push(dial=[f"tcp://host{number}.example.test:7000" for number in range(40)], linger=0)
    assert dns.recv(512)  # the lookups are in progress
    with Pull(listen="tcp://localhost:0") as pull, Push(dial=pull.address.replace("localhost", "127.0.0.1")) as push:
        push.send(b"x")
        pull.recv(timeout=5)
    END
    print(time.monotonic() - began)
"""
STRESS = """
    end, cycles, rng = time.monotonic() + float(sys.argv[1]), 0, random.Random(int(sys.argv[2]))
    listeners = [Pull(listen=listen) for listen in ("tcp://localhost:0", "ws://localhost:0/x")]
    good = [pull.address for pull in listeners]
    refused = ["tcp://localhost:1", "tcp://127.0.0.1:1", "ipc:///nowhere"]
    failing = ["tcp://a..b:1", "tcp://[fe80::1%none]:1"]

    def cycle():
        silent = [f"tcp://host{rng.randrange(9)}.example.test:7000" for _ in range(rng.randrange(4))]
        urls = silent + rng.sample(good, rng.randrange(3)) + rng.sample(refused, 2) + rng.sample(failing, 1)
        push = Push(dial=urls, linger=0)
        if rng.random() < 0.5:
            time.sleep(rng.random() * 0.01)
        if rng.random() < 0.9:
            push.close()

    def work():
        global cycles
        while time.monotonic() < end:
            cycle()
            with Pull(listen="tcp://localhost:0"):
                pass
            cycles += 1

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(cycles)
"""


@pytest.fixture
def command(hosts: Hosts, tmp_path: Path) -> list[str]:
    """Command that runs a program on a host whose DNS server is SERVER."""
    host = hosts.add("host")
    host.ip("link", "add", "v0", "type", "veth", "peer", "name", "v1")
    host.ip("addr", "add", "10.9.0.1/24", "dev", "v0")
    for interface in ("v0", "v1"):
        host.ip("link", "set", interface, "up")
    configuration = tmp_path / "resolv.conf"
    configuration.write_text(f"nameserver {SERVER}\n")
    mount = f'mount --bind {configuration} /etc/resolv.conf && exec "$@"'
    python = [sys.executable, "-X", "faulthandler", "-c"]
    return ["ip", "netns", "exec", host.namespace, "unshare", "-m", "sh", "-c", mount, "sh", *python]


@pytest.mark.parametrize("end", ENDS)
def test_neither_sockets_nor_the_exit_wait_for_a_silent_server(command: list[str], end: str) -> None:
    program = dedent(SILENT) + dedent(AT_ONCE).replace("END", ENDS[end])
    began = time.monotonic()
    done = subprocess.run([*command, program], cwd=ROOT, capture_output=True, text=True, timeout=WAIT)
    assert (done.returncode, done.stderr) == (0, "")
    assert float(done.stdout) < 2
    assert time.monotonic() - began < 5  # the system's resolver repeats its question after 5 s


@pytest.mark.slow
def test_thousands_of_dials_that_end_in_any_state_crash_nothing(command: list[str]) -> None:
    environment = os.environ | {"MALLOC_PERTURB_": "165"}  # overwrites memory that is freed
    program = dedent(SILENT).replace("dns.bind", "sys.argv[2] == '0' and dns.bind") + dedent(STRESS)
    runs = [
        subprocess.Popen(
            [*command, program, "20", str(seed)],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in range(3)
    ]
    outcomes = [(*run.communicate(timeout=90), run.returncode) for run in runs]
    assert [(errors, code) for _, errors, code in outcomes] == [("", 0)] * 3
    assert sum(int(output) for output, _, _ in outcomes) > 1_000
