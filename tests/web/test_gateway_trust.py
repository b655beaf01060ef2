"""Rights at the gateway: tokens, the policy, HTTPS; and its jobs."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import urllib.request
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from websockets.exceptions import ConnectionClosedOK
from websockets.sync.client import connect

from nngkit import Server
from nngkit.cluster import Host
from nngkit.discovery import Daemon, DaemonSettings
from nngkit.errors import AccessDenied, ConfigError
from nngkit.protocols import TLS
from nngkit.testing import aeventually
from nngkit.trust import OPEN, Realm
from nngkit.trust.guests import bearer_token, check_bearer
from nngkit.web.gateway import Gateway
from tests.cli.commands import assert_fails, nngkit
from tests.cli.processes import Running
from tests.trust.one_realm import OneRealm
from tests.web.gateways import PATIENCE, Home, served
from tests.web.test_gateway_topics import Events

pytestmark = pytest.mark.timeout(60)

EDGE = 'gateway.edge | publish = [""] | subscribe = [""] | carry = ["*"]'
ADA = 'guest.ada | publish = ["chat."] | subscribe = ["chat."] | call = ["calc/double"]'


@pytest.fixture
def farm(tmp_path: Path) -> OneRealm:
    realm = OneRealm(tmp_path)
    realm.policy(EDGE, ADA)
    return realm


def bearer(farm: OneRealm, name: str = "guest.ada", gateway: str = "gateway.edge") -> dict[str, str]:
    return {"Authorization": f"Bearer {bearer_token(farm.folder.realm, name, gateway)}"}


def edge(farm: OneRealm) -> Gateway:
    return Gateway(daemons="tls+tcp://127.0.0.1:1", publish="tls+tcp://127.0.0.1:0", trust=farm.trust("gateway.edge"))


def test_a_token_is_good_at_one_gateway_until_it_ends(farm: OneRealm) -> None:
    realm, trust = farm.folder.realm, farm.trust("gateway.edge")
    token = bearer_token(realm, "guest.ada", "gateway.edge", hours=2)
    assert check_bearer(trust, token).name == "guest.ada"
    certificate, _, signature = token.partition(".")
    for wrong, why in [
        (bearer_token(realm, "guest.ada", "gateway.other"), "binding: the signature"),
        (bearer_token(Realm.new("farm"), "guest.ada", "gateway.edge"), "other-realm"),
        (f"{certificate}.", "binding: the signature"),
        (f"{certificate}.{signature[:-4]}AAAA", "binding: the signature"),
        ("", "binding"),
        ("é.é", "binding"),
        ("A" * 10_000, "binding: not a token"),
    ]:
        with pytest.raises(AccessDenied, match=why):
            check_bearer(trust, wrong)
    with pytest.raises(ConfigError, match="hours"):
        bearer_token(realm, "guest.ada", "gateway.edge", hours=0)


@pytest.mark.slow
async def test_a_name_may_do_what_the_policy_grants_it_and_no_longer(farm: OneRealm) -> None:
    async with served(edge(farm)) as home:
        ada, bob = bearer(farm), bearer(farm, "guest.bob")
        assert (await home.ask("POST", "/pub?topic=chat.a", b"1", **ada)).status == 202
        for path, who, status in [
            ("/pub?topic=chat.a", {}, 401),
            ("/pub?topic=chat.a", {"Authorization": "Bearer x.y"}, 401),
            ("/pub?topic=chat.a", {"Authorization": "Basic YTpi"}, 401),
            ("/pub?topic=chat.a", bearer(farm, gateway="gateway.other"), 401),
            ("/pub?topic=chat.a", bob, 403),
            ("/pub?topic=other", ada, 403),
            ("/call/calc", ada, 403),
            ("/call/calc/double", bob, 403),
        ]:
            reply = await home.ask("POST", path, b"", **who)
            assert reply.status == status, (path, reply.body)
            assert ("www-authenticate" in reply.headers) == (status == 401)
        assert (await home.ask("POST", "/call/calc/double", b"", **ada)).status == 503  # granted; no daemon is there
        assert (await home.ask("GET", "/sub?topic=", **ada)).status == 403
        assert (await home.ask("GET", "/services", **ada)).status == 200
        assert home.gateway.stats.refused == {"token": 4, "right": 5}
        token = ada["Authorization"].split()[1]
        async with await trio.open_tcp_stream("127.0.0.1", home.http.port) as stream:
            line = f"GET /sub?topic=chat.&last=1&access_token={token} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
            await stream.send_all(line.encode())
            events = Events(stream)
            assert (await events.next())["data"] == {"topic": "chat.a", "body": "1"}
            farm.policy(EDGE, ADA, revoked=("guest.ada",))
            with pytest.raises(EOFError):
                await events.next()
        assert home.gateway.stats.hub.denied == 1  # type: ignore[union-attr]
        assert (await home.ask("POST", "/pub?topic=chat.a", b"1", **ada)).status == 401


async def test_a_name_calls_what_the_policy_grants_it_and_the_gateway(farm: OneRealm) -> None:
    farm.policy('host.* | offer = ["calc"]', 'gateway.edge | call = ["calc"]', 'guest.ada | call = ["calc/double"]')
    secure = "tls+tcp://127.0.0.1:0"
    settings = DaemonSettings(listen=(secure,), query=(secure,), interval=0.1)

    async def double(body: int) -> int:
        return 2 * body

    async with Daemon(settings, trust=farm.trust("daemon")) as daemon:
        calc = Server("calc", discovery=daemon.addresses, listen=secure, codec="cbor", trust=farm.trust("host.a"))
        for name in ("double", "treble"):
            calc.method(name)(double)
        gateway = Gateway(daemons=daemon.query_addresses, trust=farm.trust("gateway.edge"))
        async with calc, served(gateway) as home:
            ada = bearer(farm)
            with trio.fail_after(PATIENCE):
                while (reply := await home.call("calc/double", 21, **ada)).status == 404:  # noqa: ASYNC110
                    await trio.sleep(0.02)
            assert (reply.status, reply.value) == (200, 42)
            assert (await home.call("calc/treble", 21, **ada)).status == 403
            assert (await home.ask("GET", "/services", **ada)).value["services"] == {}  # it may not call all of calc
            farm.policy('host.* | offer = ["calc"]', 'guest.ada | call = ["calc/double"]')
            refused = await home.call("calc/double", 21, **ada)
            assert refused.status == 403
            assert "gateway.edge" in refused.value["detail"]


async def test_https_and_a_stream_over_it() -> None:
    authority, client = trustme.CA(), ssl.create_default_context()
    issued = authority.issue_cert("localhost")
    server = TLS(cert=issued.cert_chain_pems[0].bytes(), key=issued.private_key_pem.bytes())
    authority.configure_trust(client)
    gateway = Gateway(daemons="tcp://127.0.0.1:1", publish="tcp://127.0.0.1:0")
    async with served(gateway, tls=server) as home:
        assert home.http.url.startswith("https://")
        with trio.fail_after(PATIENCE):
            raw = await trio.open_tcp_stream("127.0.0.1", home.http.port)
            stream = trio.SSLStream(raw, client, server_hostname="localhost", https_compatible=True)
            await stream.send_all(b"GET /sub?topic=t HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await aeventually(lambda: home.gateway.stats.hub.open == 1, PATIENCE)  # type: ignore[union-attr]
            posting = [
                "curl",
                "-s",
                "--cacert",
                "/dev/stdin",
                "-d",
                "hello",
                f"https://localhost:{home.http.port}/pub?topic=t",
            ]
            ran = await trio.run_process(posting, stdin=authority.cert_pem.bytes(), capture_stdout=True)
            assert json.loads(ran.stdout)["id"]
            heard = b""
            while b"hello" not in heard:
                heard += await stream.receive_some(65536)
            await trio.aclose_forcefully(stream)
        plain = await home.say(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"HTTP/1.1 200" not in plain


@contextlib.asynccontextmanager
async def with_cluster(**options: Any) -> AsyncGenerator[Home]:
    """Serve a gateway whose node is the host of a cluster, and does its jobs."""
    async with Host("farm", listen="tcp://127.0.0.1:0", id="a", trust=OPEN, slots=2) as host:
        await host.joined(PATIENCE)

        @host.work("upper")
        async def upper(job: Any) -> bytes:
            if job.payload == b"wait":
                await trio.sleep(60)
            if job.payload == b"bad":
                raise ValueError("no such picture")
            return bytes(job.payload.upper())

        async with served(Gateway(**{"daemons": "tcp://127.0.0.1:1", "node": host, **options})) as home:
            yield home


async def test_jobs_are_submitted_watched_and_cancelled() -> None:
    async with with_cluster() as home:
        made = await home.ask("POST", "/submit/upper?key=k&priority=3", b"scene 1")
        assert (made.status, made.value["kind"]) == (202, "upper")
        where = made.headers["location"]
        done = await home.ask("GET", f"{where}?wait=10")
        assert (done.value["state"], done.value["result"]) == ("done", "SCENE 1")
        again = await home.ask("POST", "/submit/upper?key=k", b"scene 1")
        assert (await home.ask("GET", f"{again.headers['location']}?wait=10")).value["result"] == "SCENE 1"
        binary = await home.ask("POST", "/submit/upper", b"\xff")
        ended = (await home.ask("GET", f"{binary.headers['location']}?wait=10")).value
        assert (ended["result"], ended["encoding"]) == ("/w==", "base64")
        failed = await home.ask("POST", "/submit/upper?tries=1", b"bad")
        ended = (await home.ask("GET", f"{failed.headers['location']}?wait=10")).value
        assert (ended["state"], ended["problem"]["code"]) == ("failed", "dead")
        waiting = (await home.ask("POST", "/submit/upper", b"wait")).headers["location"]
        assert (await home.ask("GET", waiting)).value["state"] == "accepted"
        assert (await home.ask("DELETE", waiting)).status == 202
        assert (await home.ask("GET", f"{waiting}?wait=10")).value["problem"]["code"] == "cancelled"
        for path, status in [("/jobs/0", 404), ("/jobs/x", 404), ("/jobs/99", 404), (f"{where}?wait=nan", 400)]:
            assert (await home.ask("GET", path)).status == status
        for path in ("/submit/upper?colour=red", "/submit/upper?priority=99", "/submit/upper?tries=many"):
            assert (await home.ask("POST", path, b"")).status == 400


async def test_a_job_is_that_of_the_name_that_has_submitted_it(farm: OneRealm) -> None:
    farm.policy(EDGE, 'guest.* | submit = ["farm/upper"]')
    trusted = {"daemons": "tls+tcp://127.0.0.1:1", "trust": farm.trust("gateway.edge")}
    async with with_cluster(**trusted) as home:
        ada, bob = bearer(farm), bearer(farm, "guest.bob")
        assert (await home.ask("POST", "/submit/lower", b"x", **ada)).status == 403
        made = await home.ask("POST", "/submit/upper?key=k", b"mine", **ada)
        where = made.headers["location"]
        assert (await home.ask("GET", f"{where}?wait=10", **ada)).value["result"] == "MINE"
        assert (await home.ask("GET", where, **bob)).status == 404
        assert (await home.ask("DELETE", where, **bob)).status == 404
        other = await home.ask("POST", "/submit/upper?key=k", b"his", **bob)
        assert (await home.ask("GET", f"{other.headers['location']}?wait=10", **bob)).value["result"] == "HIS"


@pytest.mark.slow
def test_the_command_serves_until_it_is_told_to_end() -> None:
    with Running("gateway", "--http", "127.0.0.1:0", "--publish", "tcp://127.0.0.1:0") as gateway:
        url = gateway.line()
        assert gateway.says().startswith("nngkit gateway: publishes at tcp://127.0.0.1:")
        with urllib.request.urlopen(f"{url}pub?topic=t", b"1", timeout=PATIENCE) as reply:
            assert reply.status == 202
        gateway.process.terminate()
        assert gateway.process.wait(PATIENCE) == 143


def test_a_gateway_off_loopback_needs_a_trust_and_https(farm: OneRealm) -> None:
    assert_fails(nngkit("gateway", "--http", "0.0.0.0:0"), 2, "nothing keeps strangers out: give a --trust")
    trusted = ["gateway", "--http", "0.0.0.0:0", "--trust", str(farm.file("gateway.edge"))]
    assert_fails(nngkit(*trusted), 2, "tokens would be read on their way: give --http-cert and --http-key")


@pytest.mark.slow
def test_the_command_answers_what_it_has_begun_and_closes_the_rest_when_it_is_told_to_end() -> None:
    with Running("gateway", "--http", "127.0.0.1:0", "--publish", "tcp://127.0.0.1:0") as gateway:
        port = int(gateway.line().rpartition(":")[2].strip("/\n"))

        def connected(request: bytes, begins: bytes) -> socket.socket:
            client = socket.create_connection(("127.0.0.1", port), PATIENCE)
            client.sendall(request)
            assert client.recv(1 << 16).startswith(begins)
            return client

        get, host = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n", b"Host: localhost\r\n"
        body = b"Expect: 100-continue\r\nContent-Length: 1\r\n\r\n"
        with (
            connected(get % b"/healthz", b"HTTP/1.1 200 ") as idle,
            connected(get % b"/sub", b"HTTP/1.1 200 ") as stream,
            connect(f"ws://127.0.0.1:{port}/sub", open_timeout=PATIENCE) as page,
            connected(b"POST /pub?topic=t HTTP/1.1\r\n" + host + body, b"HTTP/1.1 100 ") as begun,
        ):
            gateway.process.terminate()
            told = dict.fromkeys((idle, stream), b"")
            for other in told:
                while more := other.recv(1 << 16):
                    told[other] += more
            assert (told[idle], told[stream][-5:]) == (b"", b"0\r\n\r\n")
            with pytest.raises(ConnectionClosedOK, match=r"1001 \(going away\) the gateway ends; connect again"):
                page.recv(PATIENCE)
            begun.sendall(b"1")
            answer = begun.recv(1 << 16)
            assert answer.startswith(b"HTTP/1.1 202 ")
            assert b"\r\nConnection: close\r\n" in answer
        assert gateway.process.wait(PATIENCE) == 143
