"""Handshake of SP over WebSocket: requests and responses, accepted and refused."""

from __future__ import annotations

import pytest

from nngkit.errors import BadMessage, ConfigError
from nngkit.protocols.websocket import ClientMachine, Request
from tests.protocols.websocket_machines import (
    MIB,
    PUSH,
    WHOLE,
    answer_of,
    client_of,
    frame,
    pieces,
    request_of,
    sent_by,
    server_of,
    take,
)

# ---- the handshake, server -------------------------------------------------------------------------------------------


def test_a_request_is_shown_before_it_is_answered() -> None:
    server = server_of("/brick", "127.0.0.1")
    assert server.begun
    take(server, request_of("GET /brick?token=7 HTTP/1.1", Origin="http://elsewhere.example"))
    assert (server.awaits_accept, server.open, server.ended, server.to_send) == (True, False, False, [])
    assert server.request == Request("/brick?token=7", "http://elsewhere.example", "127.0.0.1:9000")
    server.accept()
    server.accept()
    assert sent_by(server) == (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: ICX+Yqv66kxgM0FcWaLWlFLwTAI=\r\nSec-WebSocket-Protocol: push.sp.nanomsg.org\r\n\r\n"
    )
    assert (server.awaits_accept, server.open, server.ended, server.begun) == (False, True, False, False)


def test_a_refused_request_is_answered_with_403() -> None:
    server = server_of("/brick")
    server.refuse()
    take(server, request_of() + b"rest")
    server.refuse()
    assert sent_by(server).startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert (server.awaits_accept, server.open, server.ended, server.begun, server.more) == (
        False,
        False,
        True,
        False,
        False,
    )
    server.accept()
    assert take(server, b"more") == []
    assert not server.to_send


@pytest.mark.parametrize(
    ("told", "asked", "path"),
    [
        ("127.0.0.1", "127.0.0.1", "/brick"),
        ("127.0.0.1", "127.0.0.1:80", "/brick"),
        ("127.0.0.1", "127.0.0.1", "/brick?query"),
        ("nngkit.example", "NNGkit.Example:1", "/brick"),
        ("::1", "[::1]:9000", "/brick"),
        ("[::1]", "[::1]", "/brick"),
        *((everywhere, "nngkit.example", "/brick") for everywhere in ("0.0.0.0", "*", "::", "[::]", "", None)),
    ],
)
def test_a_listener_accepts_its_host_with_any_port(told: str | None, asked: str, path: str) -> None:
    server = server_of("/brick", told)
    take(server, request_of(f"GET {path} HTTP/1.1", Host=asked))
    assert server.awaits_accept


@pytest.mark.parametrize(
    "changes",
    [
        {"Sec_WebSocket_Protocol": f"pull.sp.nanomsg.org, {PUSH}"},
        {"Sec_WebSocket_Protocol": f"chat,{PUSH} ,\r\nSec-WebSocket-Protocol: other"},
        {"Connection": "keep-alive, Upgrade"},
        {"Upgrade": "WebSocket"},
        {"Sec_WebSocket_Extensions": "permessage-deflate; client_max_window_bits"},
        {"Origin": "null"},
    ],
)
def test_requests_of_browsers_are_accepted(changes: dict[str, str]) -> None:
    server = server_of("/brick")
    take(server, request_of(**changes))
    assert server.awaits_accept
    server.accept()
    assert f"Sec-WebSocket-Protocol: {PUSH}\r\n".encode() in server.to_send[0]
    assert b"Extensions" not in server.to_send[0]


REFUSED: dict[str, tuple[bytes, int, str]] = {
    "another path": (request_of("GET / HTTP/1.1"), 404, "path /"),
    "a longer path": (request_of("GET /brick/ HTTP/1.1"), 404, "path /brick/"),
    "another host": (request_of(Host="localhost:9000"), 404, "host localhost:9000"),
    "no host": (request_of(Host=None), 400, "[Hh]ost"),
    "two hosts": (request_of(Host="a\r\nHost: b"), 400, "Host"),
    "another method": (request_of("POST /brick HTTP/1.1", Content_Length="0"), 405, "method POST"),
    "an old HTTP": (request_of("GET /brick HTTP/1.0"), 505, "HTTP/1.0"),
    "no upgrade": (request_of(Upgrade=None), 426, "not an upgrade"),
    "another upgrade": (request_of(Upgrade="h2c"), 426, "not an upgrade"),
    "no connection": (request_of(Connection="keep-alive"), 426, "not an upgrade"),
    "an old version": (request_of(Sec_WebSocket_Version="8"), 426, "version 8"),
    "no version": (request_of(Sec_WebSocket_Version=None), 400, "version None"),
    "no key": (request_of(Sec_WebSocket_Key=None), 400, "key is not 16 bytes"),
    "a short key": (request_of(Sec_WebSocket_Key="AAAA"), 400, "key is not 16 bytes"),
    "a key that is none": (request_of(Sec_WebSocket_Key="\xff" * 24), 400, "key is not 16 bytes"),
    "the dialer's protocol": (request_of(Sec_WebSocket_Protocol="pull.sp.nanomsg.org"), 400, "pull.* instead of"),
    "no protocol": (request_of(Sec_WebSocket_Protocol=None), 400, "no subprotocol instead of push"),
    "a body": (request_of(Content_Length="5"), 400, "body"),
    "a line that is none": (b"GET\r\n\r\n", 400, "illegal request line"),
    "an empty line": (b"\r\n\r\n", 400, "not HTTP"),
    "a hello of SP": (b"\0SP\0\0\x50\0\0", 400, "not HTTP|the peer speaks SP"),  # cut into bytes, or whole
    "a hello of TLS": (b"\x16\x03\x01", 400, "not HTTP|the peer speaks TLS"),
    "a head without an end": (request_of()[:-2] + b"X: " + bytes([65]) * 16384, 431, "16384 bytes"),
    "a large head": (request_of(X="x" * 16384), 431, "16384 bytes"),
}


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize("what", REFUSED)
def test_an_invalid_request_gets_an_http_error(what: str, size: int) -> None:
    wire, status, why = REFUSED[what]
    server = server_of("/brick", "127.0.0.1")
    chunks = pieces(wire, [size])
    with pytest.raises(BadMessage, match=why) as caught:
        [take(server, chunk) for chunk in chunks]
    assert caught.value.what == "WebSocket handshake"
    head = sent_by(server)
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert head.endswith(b"\r\nContent-Length: 0\r\n\r\n")
    assert (server.ended, server.open, server.awaits_accept, server.begun, server.end()) == (
        True,
        False,
        False,
        False,
        b"",
    )
    assert take(server, b"more") == []


# ---- the handshake, client -------------------------------------------------------------------------------------------


def test_a_client_sends_the_request_of_nng() -> None:
    client = ClientMachine(PUSH, "/brick?x=1", "127.0.0.1:9000", MIB, bytes)
    assert client.begun
    assert sent_by(client) == (
        b"GET /brick?x=1 HTTP/1.1\r\nHost: 127.0.0.1:9000\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: push.sp.nanomsg.org\r\n\r\n"
    )
    assert sent_by(client_of(path="")).startswith(b"GET / HTTP/1.1\r\n")


@pytest.mark.parametrize(("path", "host"), [("/a b", "host"), ("/a\r\nX: y", "host"), ("/", "a\r\nX: y"), ("/é", "h")])
def test_an_address_invalid_in_http_is_a_config_error(path: str, host: str) -> None:
    with pytest.raises(ConfigError, match="WebSocket address"):
        client_of(path, host)


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_a_client_is_open_when_its_request_was_accepted(size: int) -> None:
    client = ClientMachine(PUSH, "/", "host", MIB, bytes)
    messages = [body for chunk in pieces(answer_of() + frame(WHOLE, b"early"), [size]) for body in take(client, chunk)]
    assert client.open
    assert messages == [b"early"]


@pytest.mark.parametrize("size", [1, 1 << 20])
@pytest.mark.parametrize(
    ("wire", "why"),
    [
        (answer_of("HTTP/1.1 404 Not Found", Content_Length="0"), "the listener answered 404 Not Found"),
        (answer_of("HTTP/1.1 200 OK"), "the listener answered 200 OK"),
        (answer_of("HTTP/1.1 100 Continue"), "the listener answered 100"),
        (answer_of(Upgrade=None), "not an upgrade"),
        (answer_of(Connection="close"), "not an upgrade"),
        (answer_of(Sec_WebSocket_Accept=None), "another key"),
        (answer_of(Sec_WebSocket_Accept="AAAA"), "another key"),
        (answer_of(Sec_WebSocket_Protocol=None), "no subprotocol instead of push"),
        (answer_of(Sec_WebSocket_Protocol="pull.sp.nanomsg.org"), "pull.sp.nanomsg.org instead of push"),
        (answer_of(Sec_WebSocket_Extensions="permessage-deflate"), "extension"),
        (b"HTTP/1.1 nonsense\r\n\r\n", "illegal status line"),
        (b"HTTP/1.", "never complete"),
        (b"\0SP\0\0\x50\0\0", "not HTTP|the peer speaks SP"),
        (b"SSH-2.0-", "not HTTP"),
        (answer_of(X="x" * 16384), "16384 bytes"),
    ],
)
def test_a_client_refuses_an_invalid_response(wire: bytes, why: str, size: int) -> None:
    client = ClientMachine(PUSH, "/", "host", MIB, bytes)
    sent_by(client)
    if why == "never complete":
        assert take(client, wire) == []
        assert client.begun
        return
    with pytest.raises(BadMessage, match=why) as caught:
        [take(client, chunk) for chunk in pieces(wire, [size])]
    assert caught.value.what == "WebSocket handshake"
    assert (client.ended, client.open, client.to_send, client.end()) == (True, False, [], b"")
    assert take(client, b"more") == []
