"""Addresses of a peer's sockets, as advertised and as resolved."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nngkit.documents.sync.addresses import advertised, repair_beside, repair_for_dialer, resolved


@pytest.mark.parametrize(
    ("bus", "repair"),
    [
        ("tcp://10.0.0.7:4711", "tcp://10.0.0.7:0"),
        ("tcp://[::1]:4711", "tcp://[::1]:0"),
        ("tcp://0.0.0.0:4711", "tcp://0.0.0.0:0"),
        ("tcp://:4711", "tcp://:0"),
        ("tls+tcp://host:4711", "tls+tcp://host:0"),
        ("ipc:///run/notes", "ipc:///run/notes.repair"),
        ("inproc://notes", "inproc://notes.repair"),
        ("ws://10.0.0.7:4712/notes", "ws://10.0.0.7:4712/notes/repair"),
        ("wss://host:4712/", "wss://host:4712/repair"),
        ("ws://host/notes", "ws://host/notes/repair"),
    ],
)
def test_rep_address_defaults_to_beside_the_bus(bus: str, repair: str) -> None:
    assert repair_beside(bus) == repair


@pytest.mark.parametrize(
    ("other", "repair"),
    [
        ("ipc:///run/notes", "ipc:///run/notes.me.repair"),
        ("inproc://notes", "inproc://notes.me.repair"),
        ("tcp://127.0.0.1:4711", "tcp://127.0.0.1:0"),
        ("tcp://[::1]:4711", "tcp://127.0.0.1:0"),
        ("ws://localhost:4712/notes", "tcp://127.0.0.1:0"),
        ("tcp://10.0.0.7:4711", None),
        ("tls+tcp://localhost:4711", None),
        ("wss://localhost:4712/notes", None),
    ],
)
def test_peer_that_only_dials_opens_no_network_port(other: str, repair: str | None) -> None:
    assert repair_for_dialer(other, "me") == repair


@pytest.mark.parametrize(
    ("address", "seen", "found"),
    [
        ("tcp://10.0.0.7:4711", "tcp://10.0.0.9:51234", "tcp://10.0.0.7:4711"),
        ("tcp://*:4711", "tcp://10.0.0.9:51234", "tcp://10.0.0.9:4711"),
        ("tcp://*:4711", "tcp://[fe80::1]:51234", "tcp://[fe80::1]:4711"),
        ("ws://*:4712/secret", "tcp://10.0.0.9:51234", "ws://10.0.0.9:4712/secret"),
        ("ws://*/secret", "ws://10.0.0.9:51234/x", "ws://10.0.0.9/secret"),
        ("tcp://*:4711", "ipc:///run/notes", None),
        ("tcp://*:4711", None, None),
        ("ipc:///run/notes.repair", None, "ipc:///run/notes.repair"),
        ("tcp://[", "tcp://10.0.0.9:51234", None),
        ("tcp://[::1", "tcp://10.0.0.9:51234", None),
        ("http://10.0.0.7/", "tcp://10.0.0.9:51234", None),
        ("", "tcp://10.0.0.9:51234", None),
    ],
)
def test_wildcard_host_resolves_to_the_host_of_the_connection(
    address: str, seen: str | None, found: str | None
) -> None:
    assert resolved(address, seen) == found


@pytest.mark.parametrize(
    ("address", "as_told"),
    [
        ("tcp://0.0.0.0:4712", "tcp://*:4712"),
        ("tcp://[::]:4712", "tcp://*:4712"),
        ("ws://0.0.0.0:4712/secret", "ws://*:4712/secret"),
        ("tcp://10.0.0.7:4712", "tcp://10.0.0.7:4712"),
        ("ws://notes.example/secret", "ws://notes.example/secret"),
        ("ipc:///run/notes", "ipc:///run/notes"),
    ],
)
def test_wildcard_listener_advertises_a_wildcard(address: str, as_told: str) -> None:
    assert advertised(address) == as_told
    if "*" in as_told:
        assert resolved(as_told, "tcp://10.0.0.9:1") == as_told.replace("*", "10.0.0.9")


@given(st.text(max_size=60) | st.text("tcpws:/[]*@.0123456789", max_size=30))
def test_any_advertised_text_resolves_to_an_address_or_none(text: str) -> None:
    found = resolved(text, "tcp://10.0.0.9:51234")
    assert found is None or "://" in found or ":" in found


def test_a_session_stays_in_a_resolved_address() -> None:
    assert resolved("wss://*:4712/notes?9f0c", "wss://10.0.0.9:51234") == "wss://10.0.0.9:4712/notes?9f0c"
