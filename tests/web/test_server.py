"""The web server over real sockets: responses, refusals, and slow clients."""

import contextlib
import gzip
import http.client
import json
import re
import socket
import ssl
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from nngkit.errors import ConfigError, Unreachable
from nngkit.protocols import TLS
from nngkit.testing import aeventually
from nngkit.trust import Trust
from nngkit.web.exchange import CHUNKED, LAST_CHUNK, Channel, Request, Streamed, chunk
from nngkit.web.server import Server, ServerLimits, link, serve
from nngkit.web.serving import serving as serve_while
from nngkit.web.site import Site
from tests.trust.one_realm import FARM, OneRealm

PATIENCE = 10.0  # seconds for any one event, on a loaded machine


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder to serve, next to a secret file."""
    pages = tmp_path / "pages"
    pages.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (pages / "index.html").write_text("<!doctype html>hello")
    (pages / "page.js").write_text("1")
    (pages / "data.bin").write_bytes(bytes(range(256)))
    (pages / ".hidden").write_text("secret")
    (pages / "link.txt").symlink_to(tmp_path / "secret.txt")
    (pages / "sub").mkdir()
    (pages / "sub" / "inner.txt").write_text("secret")
    return pages


@contextlib.asynccontextmanager
async def serving(folder: Path, tls: TLS | Trust | None = None, **limits: Any) -> AsyncGenerator[Server]:
    site = Site.load(folder, json={"config.json": lambda: {"documents": ["é"]}}, connect=["ws://*:4712/repair/x"])
    async with trio.open_nursery() as nursery:
        server: Server = await nursery.start(
            lambda task_status: serve(
                site, names=("x", "Example.org"), tls=tls, limits=ServerLimits(**limits), task_status=task_status
            )
        )
        yield server
        nursery.cancel_scope.cancel()


async def get(
    server: Server, path: str, method: str = "GET", *, trusting: Any = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Send a request with the standard library's client, in a thread; by https if it trusts a trustme.CA."""

    def ask() -> tuple[int, dict[str, str], bytes]:
        client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        if trusting is not None:
            context = ssl.create_default_context(cadata=trusting.cert_pem.bytes().decode())
            client = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=PATIENCE, context=context)
        with contextlib.closing(client):
            client.request(method, path, headers=headers)
            response = client.getresponse()
            return response.status, {name.lower(): value for name, value in response.getheaders()}, response.read()

    return await trio.to_thread.run_sync(ask)


async def say(server: Server, data: bytes, *, end: bool = False) -> bytes:
    """Send raw bytes, and read until the server has closed."""
    with trio.fail_after(PATIENCE):
        stream = await trio.open_tcp_stream("127.0.0.1", server.port)
        async with stream:
            with contextlib.suppress(trio.BrokenResourceError):
                await stream.send_all(data)
                if end:
                    await stream.send_eof()
            heard = b""
            with contextlib.suppress(trio.BrokenResourceError):
                while more := await stream.receive_some(65536):
                    heard += more
    return heard


async def test_files_are_served_with_content_type_and_security_headers(folder: Path) -> None:
    async with serving(folder) as server:
        status, headers, body = await get(server, "/?query=ignored")
        assert (status, body) == (200, b"<!doctype html>hello")
        assert headers["content-type"] == "text/html; charset=utf-8"
        assert headers["x-content-type-options"] == "nosniff"
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "connect-src 'self' ws://127.0.0.1:4712;" in policy
        assert "repair" not in policy
        assert (await get(server, "/page.js"))[1]["content-type"] == "text/javascript; charset=utf-8"
        status, headers, body = await get(server, "/data.bin")
        assert (headers["content-type"], body) == ("application/octet-stream", bytes(range(256)))
        assert "date" not in headers


async def test_a_request_for_another_name_is_misdirected(folder: Path) -> None:
    here = socket.gethostname()
    async with serving(folder) as server:
        for name in ("127.0.0.1", "localhost", "LocalHost.", "[::1]", "10.0.0.7", "example.org", here, f"{here}.local"):
            assert (await get(server, "/", Host=f"{name}:{server.port}"))[0] == 200
        for name in ("evil.example", "example.org.evil", "127.0.0.1.nip.io", "xx", "a_b.evil.example"):
            for path in ("/", "/config.json", "/none"):
                status, headers, body = await get(server, path, Host=f"{name}:{server.port}")
                assert (status, body) == (421, b"this server does not have that name\n")
                assert headers["x-frame-options"] == "DENY"


async def test_a_page_of_another_site_is_refused(folder: Path) -> None:
    async with serving(folder) as server:
        own = f"127.0.0.1:{server.port}"
        assert (await get(server, "/config.json", Host=own, Origin=f"http://{own}"))[0] == 200
        for origin in ("http://evil.example", "null", "", f"http://127.0.0.1:{server.port + 1}", "http://127.0.0.1"):
            assert (await get(server, "/config.json", Host=own, Origin=origin))[0] == 403


# ---- TLS


def written(folder: Path, authority: trustme.CA) -> TLS:
    """Write a certificate for 127.0.0.1, in place of an earlier one, and return the settings by its files."""
    issued = authority.issue_cert("127.0.0.1")
    (folder / "cert.pem").write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    (folder / "key.pem").write_bytes(issued.private_key_pem.bytes())
    return TLS(cert=folder / "cert.pem", key=folder / "key.pem")


async def test_https_is_served_with_the_certificate_that_is_there_now(folder: Path, tmp_path: Path) -> None:
    old, new = trustme.CA(), trustme.CA()
    async with serving(folder, written(tmp_path, old)) as server:
        assert server.url == f"https://127.0.0.1:{server.port}/"
        status, headers, body = await get(server, "/", trusting=old)
        assert (status, body) == (200, b"<!doctype html>hello")
        assert "connect-src 'self' ws://127.0.0.1:4712;" in headers["content-security-policy"]
        own = f"any.example:{server.port}"  # browsers compare the name with the certificate
        assert (await get(server, "/", trusting=old, Host=own, Origin=f"https://{own}"))[0] == 200
        assert (await get(server, "/", trusting=old, Host=own, Origin="https://evil.example"))[0] == 403
        written(tmp_path, new)
        assert (await get(server, "/", trusting=new))[0] == 200
        with pytest.raises(ssl.SSLCertVerificationError):
            await get(server, "/", trusting=old)
        (tmp_path / "key.pem").write_text("damaged")
        assert (await get(server, "/", trusting=new))[0] == 200  # the last good one
        assert server.stats.refused == 1


async def test_a_trust_shows_its_pass_and_asks_for_none(folder: Path, tmp_path: Path) -> None:
    farm = OneRealm(tmp_path / "farm")
    async with serving(folder, farm.trust("hub", ("127.0.0.1",))) as server:

        def ask() -> int:
            context = ssl.create_default_context(cadata=FARM.certificate)
            with contextlib.closing(
                http.client.HTTPSConnection("127.0.0.1", server.port, timeout=PATIENCE, context=context)
            ) as client:
                client.request("GET", "/")
                return client.getresponse().status

        assert await trio.to_thread.run_sync(ask) == 200


async def test_a_handshake_that_fails_or_takes_too_long_is_counted(folder: Path, tmp_path: Path) -> None:
    tls = written(tmp_path, authority := trustme.CA())
    async with serving(folder, tls, handshake=0.3, connections=1) as server:
        assert await say(server, b"") == b""  # silent until the server ends it
        assert server.stats.refused == 1
        assert b"HTTP/1" not in await say(server, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert server.stats.refused == 2
        async with await trio.open_tcp_stream("127.0.0.1", server.port):
            await aeventually(lambda: server.stats.open == 1)
            assert await say(server, b"") == b""  # one too many: at once
            assert server.stats.refused == 3
        await aeventually(lambda: server.stats.open == 0)
        assert (await get(server, "/", trusting=authority))[0] == 200
        assert server.stats.answers == {200: 1}


async def test_an_unusable_certificate_is_a_configuration_error(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.pem"):
        await serve(Site.load(folder), tls=TLS(cert=folder / "none.pem", key=folder / "none.pem"))


async def test_security_policy_names_the_requested_host(folder: Path) -> None:
    async with serving(folder) as server:
        for host in ("example.org", "[::1]"):
            policy = (await get(server, "/", Host=f"{host}:80"))[1]["content-security-policy"]
            assert f" ws://{host}:4712;" in policy
        for host in ("a b", "x;script-src *", "evil'", "", "[::1", "a" * 300):
            assert (await get(server, "/", Host=host))[0] == 400


async def test_unchanged_files_get_304(folder: Path) -> None:
    async with serving(folder) as server:
        _, headers, _ = await get(server, "/page.js")
        assert headers["cache-control"] == "no-cache"
        for tag in (headers["etag"], f'"other", W/{headers["etag"]}'):
            status, again, body = await get(server, "/page.js", **{"If-None-Match": tag})
            assert (status, body, again["etag"]) == (304, b"", headers["etag"])
        assert (await get(server, "/page.js", **{"If-None-Match": '"other"'}))[0] == 200


TEXT = "function page() { return 'the same again and again'; }\n" * 100
GZIP = [
    "gzip",
    "gzip, deflate, br, zstd",
    "x-gzip",
    "GZIP;q=0.5",
    "*",
    "br;q=1.0, *;q=0.1",
    "identity;q=0.2, gzip;q=0.3",
]
NO_GZIP = ["", "identity", "br, deflate", "gzip;q=0", "gzip; q=0.000", "*;q=0", "gzip;q=0, *", "identity, gzip;q=0.5"]
NO_GZIP += ["gzip;q=2", "gzip;q=nan", "gzip;level=9", "gzip;q=1;q=0", "gzipped", ";q=1", ",,;;"]


@pytest.mark.parametrize("accepted", [None, *GZIP, *NO_GZIP])
async def test_text_is_compressed_for_clients_that_accept_it(folder: Path, accepted: str | None) -> None:
    (folder / "large.js").write_text(TEXT)
    async with serving(folder) as server:
        asked = {} if accepted is None else {"Accept-Encoding": accepted}
        packed = accepted in GZIP
        status, headers, body = await get(server, "/large.js", **asked)
        assert (status, headers["vary"]) == (200, "Accept-Encoding")
        assert headers.get("content-encoding") == ("gzip" if packed else None)
        assert (gzip.decompress(body) if packed else body).decode() == TEXT
        assert len(body) == int(headers["content-length"])
        assert not packed or len(body) < len(TEXT) / 10
        assert headers["content-type"] == "text/javascript; charset=utf-8"
        assert (await get(server, "/large.js", "HEAD", **asked))[1] == headers


async def test_each_representation_of_a_file_has_its_own_etag(folder: Path) -> None:
    (folder / "large.js").write_text(TEXT)
    async with serving(folder) as server:
        tags = {}
        for coding in ("gzip", "identity"):
            tags[coding] = (await get(server, "/large.js", **{"Accept-Encoding": coding}))[1]["etag"]
        assert tags["gzip"] != tags["identity"]
        for coding, tag in tags.items():
            for known, its in tags.items():
                asked = {"Accept-Encoding": coding, "If-None-Match": its}
                status, headers, body = await get(server, "/large.js", **asked)
                assert status == (304 if coding == known else 200)
                assert (headers["vary"], headers["etag"]) == ("Accept-Encoding", tag)
                assert "content-type" not in headers or status == 200
                assert body == b"" or status == 200


async def test_incompressible_files_are_sent_plain(folder: Path) -> None:
    (folder / "large.png").write_bytes(bytes(5000))  # an image is compressed already
    async with serving(folder) as server:
        for path in ("/", "/large.png", "/config.json"):
            _, headers, _ = await get(server, path, **{"Accept-Encoding": "gzip"})
            assert "content-encoding" not in headers
            assert "vary" not in headers


async def test_header_list_in_two_lines_is_one_list(folder: Path) -> None:
    (folder / "large.js").write_text(TEXT)
    async with serving(folder) as server:
        lines = b"GET /large.js HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        heard = await say(server, lines + b"Accept-Encoding: gzip\r\nAccept-Encoding: br\r\n\r\n")
        assert b"\r\nContent-Encoding: gzip\r\n" in heard


async def test_json_is_computed_for_each_request_and_not_cached(folder: Path) -> None:
    async with serving(folder) as server:
        status, headers, body = await get(server, "/config.json")
        assert (status, json.loads(body)) == (200, {"documents": ["é"]})
        assert (headers["content-type"], headers["cache-control"]) == ("application/json", "no-store")


async def test_head_is_get_without_a_body_and_nothing_else_is_served(folder: Path) -> None:
    async with serving(folder) as server:
        status, headers, body = await get(server, "/", "HEAD")
        assert (status, headers["content-length"], body) == (200, "20", b"")
        for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"):
            status, headers, _ = await get(server, "/", method)
            assert (status, headers["allow"]) == (405, "GET, HEAD")


ELSEWHERE = [
    "/../secret.txt",
    "/..%2fsecret.txt",
    "/%2e%2e/secret.txt",
    "/..\\secret.txt",
    "//etc/passwd",
    "/sub/inner.txt",
    "/sub/../../secret.txt",
    "/.hidden",
    "/link.txt",
    "/page.js/",
    "/page.js%00.html",
    "/nothing",
]


@pytest.mark.parametrize("path", ELSEWHERE)
async def test_only_files_of_the_folder_are_served(folder: Path, path: str) -> None:
    async with serving(folder) as server:
        heard = await say(server, f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        assert heard.startswith(b"HTTP/1.1 404 ")
        assert b"secret" not in heard


HOSTILE = {
    "no HTTP": (b"\x00\x01\x02\r\n\r\n", 400),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    "no host": (b"GET / HTTP/1.1\r\n\r\n", 400),
    "two hosts": (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "an invalid address": (b"GET http://x/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 400),
    "a space in the address": (b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", 400),
    "a header over the limit": (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 40000 + b"\r\n\r\n", 431),
    "an address over the limit": (b"GET /" + b"x" * 40000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431),
    "a header in two lines": (b"GET / HTTP/1.1\r\nHost: x\r\nX : y\r\n\r\n", 400),
    "a body": (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello", 413),
    "a body of a terabyte": (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1099511627776\r\n\r\n", 413),
    "a body in chunks": (b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", 413),
    "lengths that differ": (b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", 400),
}


@pytest.mark.parametrize("what", HOSTILE)
async def test_invalid_requests_are_refused_and_the_connection_closed(folder: Path, what: str) -> None:
    request, status = HOSTILE[what]
    async with serving(folder) as server:
        heard = await say(server, request)
        assert heard.startswith(f"HTTP/1.1 {status} ".encode())
        assert heard.count(b"HTTP/1.1 ") == 1
        assert server.stats.answers == {status: 1}
        assert (await get(server, "/"))[0] == 200


async def test_pipelined_requests_are_answered_in_order(folder: Path) -> None:
    async with serving(folder, requests=3) as server:
        one = b"GET /page.js HTTP/1.1\r\nHost: x\r\n\r\n"
        heard = await say(server, one * 5)
        assert heard.count(b"HTTP/1.1 200 OK") == 3
        assert server.stats.answers == {200: 3}
        old = await say(server, b"GET /page.js HTTP/1.0\r\nHost: x\r\n\r\n")
        assert old.endswith(b"\r\n\r\n1")


async def test_incomplete_request_gets_408_and_is_closed(folder: Path) -> None:
    async with serving(folder, reading=0.2) as server:
        assert (await say(server, b"GET / HTTP/1.1\r\nHos")).startswith(b"HTTP/1.1 408 ")
        assert await say(server, b"GET / HT", end=True) == b""
        assert server.stats.cut == 2


@pytest.mark.slow
async def test_slow_request_does_not_hold_a_connection(folder: Path) -> None:
    async with serving(folder, reading=0.5) as server:
        with trio.fail_after(PATIENCE):
            async with await trio.open_tcp_stream("127.0.0.1", server.port) as stream:
                with contextlib.suppress(trio.BrokenResourceError):  # the server closes; otherwise the test times out
                    while True:
                        await stream.send_all(b"G")
                        await trio.sleep(0.05)
        assert server.stats.cut == 1


async def test_idle_connection_is_closed(folder: Path) -> None:
    async with serving(folder, idle=0.1) as server:
        assert await say(server, b"") == b""
        heard = await say(server, b"GET /page.js HTTP/1.1\r\nHost: x\r\n\r\n")
        assert heard.endswith(b"\r\n\r\n1")
        assert server.stats.cut == 0


async def test_client_that_does_not_read_is_disconnected(folder: Path) -> None:
    (folder / "large.bin").write_bytes(bytes(16 << 20))  # more than the kernel buffers
    async with serving(folder, writing=0.3) as server:
        with trio.fail_after(PATIENCE), trio.socket.socket() as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await client.connect(("127.0.0.1", server.port))
            await client.send(b"GET /large.bin HTTP/1.1\r\nHost: x\r\n\r\n")
            await aeventually(lambda: server.stats.open == 1)
            await aeventually(lambda: server.stats.open == 0)
        assert server.stats.answers == {}


async def test_connection_over_the_limit_gets_503(folder: Path) -> None:
    async with serving(folder, connections=2) as server, contextlib.AsyncExitStack() as stack:
        for count in (1, 2):
            await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", server.port))
            await aeventually(lambda count=count: server.stats.open == count)  # type: ignore[misc]
        assert (await say(server, b"")).startswith(b"HTTP/1.1 503 ")
        await stack.aclose()
        await aeventually(lambda: server.stats.open == 0)
        assert (await get(server, "/"))[0] == 200


async def test_many_clients_are_served_concurrently(folder: Path) -> None:
    async with serving(folder) as server, trio.open_nursery() as nursery:
        answers: list[int] = []

        async def ask() -> None:
            for _ in range(5):
                heard = await say(server, b"GET /data.bin HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                answers.append(len(heard.partition(b"\r\n\r\n")[2]))

        for _ in range(40):
            nursery.start_soon(ask)
        await aeventually(lambda: len(answers) == 200)
        assert answers == [256] * 200
        assert server.stats.connections == 200


async def test_cancelling_closes_all_connections(folder: Path) -> None:
    async with serving(folder) as server:
        stream = await trio.open_tcp_stream("127.0.0.1", server.port)
        await aeventually(lambda: server.stats.open == 1)
    async with stream:
        with trio.fail_after(PATIENCE), contextlib.suppress(trio.BrokenResourceError):
            assert await stream.receive_some(1) == b""
    with pytest.raises(OSError, match=r"refused|all attempts"):
        await trio.open_tcp_stream("127.0.0.1", server.port)


class Endless(Site):
    """Events of 4 MB, which no kernel takes at once, for ever."""

    EVENT = b"data: " + b"x" * (4 << 20) + b"\n\n"

    async def respond(self, request: Request) -> Streamed:
        async def run(channel: Channel) -> None:
            while True:
                await channel.write(chunk(self.EVENT))

        return Streamed(200, (CHUNKED,), run, last=LAST_CHUNK)


@pytest.mark.parametrize("secured", [False, True])
async def test_a_drained_server_ends_streams_after_what_it_has_begun_to_write(tmp_path: Path, secured: bool) -> None:
    authority = trustme.CA()
    tls = written(tmp_path, authority) if secured else None
    async with serve_while(Endless({}, {}, ()), tls=tls) as server:

        def connected() -> http.client.HTTPResponse:
            client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
            if secured:
                context = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())
                client = http.client.HTTPSConnection("127.0.0.1", server.port, timeout=PATIENCE, context=context)
            client.request("GET", "/")
            response = client.getresponse()
            response.read(1)
            return response

        reads, stays = [await trio.to_thread.run_sync(connected) for _ in range(2)]
        with reads, stays:
            server.drain()
            events = b"d" + await trio.to_thread.run_sync(reads.read)  # raises unless the last chunk has come
            assert len(events) % len(Endless.EVENT) == 0
            await server.aclose()
            await aeventually(lambda: server.stats.open == 0)  # a busy machine may cut it later
            with pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
                await trio.to_thread.run_sync(stays.read)


async def test_failure_to_listen_is_reported(folder: Path) -> None:
    site = Site.load(folder)
    async with serving(folder) as server:
        with pytest.raises(Unreachable, match=f"http://127.0.0.1:{server.port}: .*in use"):
            await serve(site, port=server.port)
    with pytest.raises(ConfigError, match="70000"):
        await serve(site, port=70000)
    with pytest.raises(Unreachable, match=r"http://256\.1\.1\.1:0"):
        await serve(site, host="256.1.1.1")


def test_link_puts_secrets_into_the_fragment() -> None:
    made = link("http://127.0.0.1:8000/", token="a b&c", doc=None)
    assert made == "http://127.0.0.1:8000/#token=a+b%26c"
    assert link("http://127.0.0.1:8000/") == "http://127.0.0.1:8000/"
    assert Server("::", 80).url == "http://[::1]:80/"
    assert Server("0.0.0.0", 80).url == "http://127.0.0.1:80/"


def test_missing_or_oversized_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        Site.load(tmp_path / "nothing")
    for number in range(300):
        (tmp_path / f"{number}.txt").touch()
    with pytest.raises(ConfigError, match="over 256 files"):
        Site.load(tmp_path)


@pytest.mark.parametrize("address", ["tcp://x:1", "ws://x y:1", "ws://a;b:1/", "ws:x"])
def test_connect_accepts_websocket_addresses_only(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(repr(address))):
        Site.load(tmp_path, connect=[address])
