"""Discovery of peers by the names of their documents."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator

import pytest
import trio

from nngkit.discovery import DaemonClient, Question, Service, deadline, first
from nngkit.discovery.daemon import Daemon
from nngkit.discovery.settings import DaemonSettings
from nngkit.documents import DocumentPeer
from nngkit.documents.sync.discovery import service_name
from nngkit.errors import ConfigError
from nngkit.testing import aeventually

PATIENCE = 20.0
HERE = "tcp://127.0.0.1:0"
PAGE = "ws://127.0.0.1:0"


async def test_peers_of_one_document_discover_each_other_only() -> None:
    folder = tempfile.mkdtemp(prefix="nngkit")  # a socket path is limited to 107 bytes
    daemon = f"ipc://{folder}/survey"
    settings = DaemonSettings(listen=(daemon,), deadline=0.1, interval=0.05)
    async with Daemon(settings) as running, trio.open_nursery() as nursery:
        nursery.start_soon(running.run)
        async with (
            DocumentPeer(listen=HERE, discovery=daemon, name="a") as a,
            DocumentPeer(listen=HERE, discovery=daemon, name="b") as b,
            DocumentPeer(listen=HERE, discovery=daemon, name="c") as c,
        ):
            ours, theirs = a.open("minutes"), b.open("minutes")
            c.open("something else")
            ours.text("body").insert(0, "found")
            with trio.fail_after(PATIENCE):
                await theirs.joined()
                while str(theirs.text("body")) != "found":  # noqa: ASYNC110
                    await trio.sleep(0.01)
            assert {peer.name for peer in a.peers} == {"b"}
            assert not c.peers
        nursery.cancel_scope.cancel()
    shutil.rmtree(folder)


@contextlib.asynccontextmanager
async def a_daemon() -> AsyncIterator[tuple[str, DaemonClient]]:
    """Run a daemon; yield its survey address, and a client of it."""
    folder = tempfile.mkdtemp(prefix="nngkit")
    settings = DaemonSettings(listen=(f"ipc://{folder}/survey",), deadline=0.3, interval=0.05)
    async with Daemon(settings) as running, DaemonClient(running.query_addresses[0]) as client:
        yield settings.listen[0], client
    shutil.rmtree(folder)


async def test_peers_with_a_token_discover_each_other_and_publish_nothing_of_it() -> None:
    async with (
        a_daemon() as (daemon, client),
        DocumentPeer(listen=PAGE, token="t0ken", discovery=daemon, name="a") as a,
    ):
        ours = a.open("minutes")
        async with DocumentPeer(listen=PAGE, token="t0ken", discovery=daemon, name="b") as b:  # comes later
            theirs = b.open("minutes")
            ours.text("body").insert(0, "found")
            await aeventually(lambda: str(theirs.text("body")) == "found")
            published = {row.provider.address for row in await client.snapshot()}
            assert published == {*a.repair_addresses, *b.repair_addresses}
            result = await client.ask(b"anything else", "document/minutes", until=deadline(PATIENCE))
            assert result.answers == ()


@pytest.mark.parametrize("token", [None, "t0ken"])
async def test_peers_that_come_and_go_are_not_dialed_for_ever(token: str | None) -> None:
    async with a_daemon() as (daemon, _), DocumentPeer(listen=PAGE, token=token, discovery=daemon) as stays:
        stays.open("minutes")
        met: set[str] = set()
        for _ in range(3):
            async with DocumentPeer(listen=PAGE, token=token, discovery=daemon) as visitor:
                visitor.open("minutes")
                await stays.wait_for_peers(1, PATIENCE)
                met.update(visitor.addresses if token is None else visitor.repair_addresses)
            await aeventually(lambda: not stays.peers)
        exchange = stays._exchange
        await aeventually(lambda: len(met & {*exchange.bus.dialed, *exchange._joined}) <= 1)  # the last, if it lingers


async def test_a_provider_that_cannot_be_dialed_ends_no_peer(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        a_daemon() as (daemon, _),
        DocumentPeer(listen=PAGE, discovery=daemon) as a,
        DocumentPeer(listen=PAGE, discovery=daemon) as b,
        Service("document/minutes", "other://host:1", discovery=daemon),
    ):
        a.open("minutes")
        await aeventually(lambda: "a provider that cannot be dialed" in caplog.text)
        b.open("minutes")
        await a.wait_for_peers(1, PATIENCE)


async def test_a_stranger_without_the_token_is_not_dialed(caplog: pytest.LogCaptureFixture) -> None:
    """Not even if it passes the question on to a peer that has it."""
    dialed: list[trio.SocketStream] = []
    asked: list[Question] = []

    async def accept(stream: trio.SocketStream) -> None:
        dialed.append(stream)

    async with a_daemon() as (daemon, client), trio.open_nursery() as nursery:

        async def pass_on(question: Question) -> bytes | None:
            asked.append(question)
            if len(asked) > 1:
                return None  # the stranger's own
            result = await client.ask(question.body, "document/minutes", until=first(1, timeout=1.0))
            return result.answers[0].body if result.answers else b"none"

        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, accept, [listener])
        address = f"ws://127.0.0.1:{listener.socket.getsockname()[1]}"
        async with (
            DocumentPeer(listen=PAGE, token="t0ken", discovery=daemon) as a,
            DocumentPeer(listen=PAGE, token="other", discovery=daemon) as b,
            Service("document/minutes", address, discovery=daemon, on_question=pass_on),
        ):
            for peer in (a, b):
                peer.open("minutes")
            line = f"document/minutes: the provider at {address} does not prove the token, and is not joined"
            await aeventually(lambda: len(asked) > 2 and line in caplog.text)
            assert not dialed
            assert not a.peers
            assert not b.peers
        nursery.cancel_scope.cancel()


async def test_discovery_requires_a_listener() -> None:
    with pytest.raises(ConfigError, match="listen="):
        async with DocumentPeer(discovery="tcp://127.0.0.1:5555"):
            raise AssertionError("entered")


def test_service_name_is_quoted_for_the_text_form() -> None:
    assert service_name("minutes/2026|ö") == "document/minutes/2026%7C%C3%B6"
    with pytest.raises(ConfigError, match="too long"):
        service_name("ö" * 40)
