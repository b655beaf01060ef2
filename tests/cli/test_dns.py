"""`nngkit discoverd --dns`, asked by Debian's dig and by raw sockets."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from nngkit.discovery.dns import server
from tests.cli.commands import WAIT, Running, assert_fails, discoverd, nngkit
from tests.discovery.peers import program

dig = pytest.mark.needs_program("dig", package="bind9-dnsutils")


@contextmanager
def running() -> Iterator[tuple[Running, int]]:
    """Run a daemon with a DNS server; yield it with its port."""
    with discoverd("--json", "--dns", "127.0.0.1:0") as daemon:
        (said,) = (re.search(r"DNS of nngkit\. at 127\.0\.0\.1, port (\d+)", line) for line in daemon.warnings)
        assert said is not None
        yield daemon, int(said[1])


def asked(port: int, name: str, kind: str, *more: str) -> str:
    command = ["dig", "@127.0.0.1", "-p", str(port), "+tries=1", f"+time={WAIT}", *more, name, kind]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=WAIT).stdout


@dig
def test_dig_finds_a_provider_until_it_goes() -> None:
    with (
        running() as (daemon, port),
        program("provider", "answer", "tcp://10.0.0.1:9000", daemon.surveys) as provider,
    ):
        assert daemon.change()["state"] == "up"
        for way in ("+notcp", "+tcp"):
            assert asked(port, "answer.service.nngkit", "SRV", "+short", way) == "8 100 9000 0a000001.addr.nngkit.\n"
        assert asked(port, "answer.service.nngkit", "A", "+short") == "10.0.0.1\n"
        whole = asked(port, "answer.service.nngkit", "SRV")
        assert "status: NOERROR" in whole
        assert re.search(r"0a000001\.addr\.nngkit\.\s+1\s+IN\s+A\s+10\.0\.0\.1", whole)
        provider.kill()
        assert daemon.change()["state"] == "down"
        gone = asked(port, "answer.service.nngkit", "SRV")
        assert "status: NXDOMAIN" in gone
        assert re.search(r"nngkit\.\s+1\s+IN\s+SOA", gone)


def test_what_is_no_query_ends_in_an_error_or_nothing_and_limits_hold() -> None:
    with running() as (_, port):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
            datagrams.settimeout(WAIT)
            datagrams.connect(("127.0.0.1", port))
            datagrams.send(b"\x00")  # no reply, and the next is answered
            datagrams.send(b"\x12\x34\x01\x00\x00\x01" + b"\x00" * 6 + b"\xff")
            assert datagrams.recv(512)[:4] == b"\x12\x34\x81\x01"
        many = [socket.create_connection(("127.0.0.1", port), WAIT) for _ in range(server.CONNECTIONS + 1)]
        try:
            assert many[-1].recv(1) == b""
        finally:
            for each in many:
                each.close()


def test_other_machines_may_ask_only_if_that_is_said() -> None:
    assert_fails(nngkit("discoverd", "--dns", "0.0.0.0:0"), 2, "--dns: 0.0.0.0: other machines can reach it")
    assert_fails(nngkit("discoverd", "--dns", "localhost:0"), 2, "is not a numeric address")
    assert nngkit("discoverd", "--dns", "0.0.0.0:0", "--trust", "open", "--check").returncode == 0
