"""Diagnosis of evidence, without a socket."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.cli.diagnosis import (
    NUMBERS,
    PEERS,
    Address,
    Connected,
    Diagnosis,
    Seen,
    TlsTrouble,
    Upgrade,
    diagnose,
)
from nngkit.errors import ConfigError

TCP = Address.of("tcp://127.0.0.1:5555")
WS = Address.of("ws://127.0.0.1:5555/path")
TLS = Address.of("tls+tcp://127.0.0.1:5555")
NAMES = st.sampled_from(sorted(NUMBERS))


def hello(name: str) -> bytes:
    return b"\0SP\0" + struct.pack(">HH", NUMBERS[name], 0)


def codes(found: Diagnosis) -> list[str]:
    return [finding.code for finding in found.findings]


def test_the_table_of_peers_is_symmetric() -> None:
    assert all(PEERS[PEERS[name]] == name for name in NUMBERS)
    assert set(PEERS) == set(NUMBERS)


@given(NAMES, st.none() | NAMES)
def test_only_matching_protocols_are_compatible(peer: str, mine: str | None) -> None:
    over_tcp = diagnose(Seen(TCP, greeting=hello(peer)), mine)
    over_ws = diagnose(Seen(WS, upgrades=(Upgrade(peer, 101),)), mine)
    for found in (over_tcp, over_ws):
        assert found.peer == peer
        if mine is None or PEERS[mine] == peer:
            assert (found.ok, found.exit_code, codes(found)) == (True, 0, ["connected", "peer"])
        else:
            code = "pair-version" if {mine, peer} == {"pair0", "pair1"} else "mismatch"
            assert (found.ok, found.exit_code, codes(found)) == (False, 1, ["connected", code])


@given(
    st.sampled_from([TCP, WS, TLS]),
    st.sampled_from(list(Connected)),
    st.none() | st.builds(TlsTrouble, st.text(), st.text(), st.none() | st.integers(0, 99)),
    st.binary(),
    st.binary(),
    st.booleans(),
    st.lists(st.builds(Upgrade, NAMES, st.none() | st.integers(100, 599))),
    st.none() | NAMES,
)
def test_every_evidence_has_a_consistent_diagnosis(
    address: Address,
    connected: Connected,
    tls: TlsTrouble | None,
    greeting: bytes,
    answer: bytes,
    closed: bool,
    upgrades: list[Upgrade],
    mine: str | None,
) -> None:
    seen = Seen(
        address,
        connected,
        tls=tls if address.tls else None,
        greeting=greeting,
        answer=answer,
        closed=closed,
        upgrades=tuple(upgrades),
    )
    found = diagnose(seen, mine)
    problems = [finding for finding in found.findings if finding.level == "problem"]
    assert found.ok == (found.exit_code == 0) == (not problems)
    assert (found.exit_code == 3) == (connected is not Connected.YES)
    assert all(("\n" not in finding.what and finding.what.isprintable()) or tls for finding in found.findings)


@pytest.mark.parametrize(
    ("seen", "code", "exit_code"),
    [
        (Seen(TCP, greeting=b"HTTP/1.0 400 Bad\r\n"), "http", 1),
        (Seen(TCP, answer=b"HTTP/1.0 200 OK\r\n"), "http", 1),
        (Seen(TCP, answer=b"\x15\x03\x01\x00\x02\x02\x46"), "tls-wanted", 1),
        (Seen(TCP, greeting=b"SSH-2.0-x\r\n"), "not-sp", 1),
        (Seen(TCP, greeting=b"\0SP\0\0\x50\0\x01"), "not-sp", 1),
        (Seen(TCP, greeting=b"\0SP\0\0\x07\0\0"), "unknown-protocol", 1),
        (Seen(TCP, greeting=b"\0SP"), "not-sp", 1),
        (Seen(TCP, closed=True), "closed", 1),
        *((Seen(TLS, tls=TlsTrouble("x", "x", code)), "tls-unknown-authority", 1) for code in (2, 18, 19, 20, 21)),
        (Seen(TLS, tls=TlsTrouble("x", "x", 9)), "tls-not-yet", 1),
        (Seen(TLS, tls=TlsTrouble("x", "x", 10)), "tls-expired", 1),
        *((Seen(TLS, tls=TlsTrouble("x", "x", code)), "tls-name", 1) for code in (62, 64)),
        (Seen(TCP), "silent", 4),
        (Seen(WS, upgrades=(Upgrade("pull", 404),)), "ws-path", 1),
        (Seen(WS, upgrades=(Upgrade("pull", 400), Upgrade("bus", 400))), "ws-protocol", 1),
        (Seen(WS, upgrades=(Upgrade("pull", 200),)), "http", 1),
        (Seen(WS, upgrades=(Upgrade("pull", None),), greeting=hello("pull")), "no-ws", 1),
        (Seen(WS, upgrades=(Upgrade("pull", None),)), "silent", 4),
    ],
)
def test_other_servers_are_named(seen: Seen, code: str, exit_code: int) -> None:
    found = diagnose(seen, None)
    assert (codes(found), found.peer, found.exit_code) == (["connected", code], None, exit_code)


@pytest.mark.parametrize(
    ("url", "transport", "host", "port", "path"),
    [
        ("tcp://host:1", "tcp", "host", 1, "/"),
        ("tcp6://[::1]:1", "tcp", "::1", 1, "/"),
        ("ws://host", "ws", "host", 80, "/"),
        ("wss://host/a?b", "ws", "host", 443, "/a?b"),
        ("ipc:///tmp/x", "ipc", "", 0, "/tmp/x"),
        ("abstract://x", "abstract", "", 0, "x"),
    ],
)
def test_addresses_are_parsed(url: str, transport: str, host: str, port: int, path: str) -> None:
    address = Address.of(url)
    assert (address.transport, address.host, address.port, address.path) == (transport, host, port, path)


@pytest.mark.parametrize("url", ["inproc://x", "pgm://a:1", "tcp://a", "tcp://a:0", "tcp://a:x", "tcp://[::1:1"])
def test_addresses_that_cannot_be_probed_are_rejected(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^URL: "):
        Address.of(url)
