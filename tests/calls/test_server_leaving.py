"""A server that is cancelled from outside, and servers and services that read the environment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio

from nngkit import aio, blocking
from nngkit.calls import Client, Server
from nngkit.calls.middleware import Proceed, Reply
from nngkit.discovery import Daemon, DaemonSettings, Resolver, Service
from nngkit.errors import ConfigError, RemoteError
from nngkit.protocols import Req
from nngkit.testing import aeventually
from tests.calls.providers import WAIT
from tests.calls.servers import direct, echo

ANY = "tcp://127.0.0.1:0"
CALLS = 20


@pytest.mark.parametrize("codec", [None, "cbor"])
@pytest.mark.parametrize("streams", [False, True])
async def test_a_server_that_is_cancelled_finishes_its_calls_and_says_goodbye(codec: Any, streams: bool) -> None:
    if streams and codec is None:
        return
    settings = DaemonSettings(listen=(ANY,), query=(ANY,), deadline=1.0, interval=0.05)
    gate, cancelled = trio.Event(), trio.CancelScope()

    async def handler(body: Any) -> Any:
        await gate.wait()
        return body

    async def streaming(body: Any) -> Any:
        for number in range(3):
            await gate.wait()
            yield number

    async def serve(daemon: Daemon, task_status: trio.TaskStatus[Server]) -> None:
        with cancelled:
            async with Server(
                "x", streaming if streams else handler, discovery=daemon.addresses, codec=codec
            ) as server:
                task_status.started(server)
                await trio.sleep_forever()

    replies: list[Any] = []

    async def call(client: Client, number: int) -> None:
        body = b"%d" % number
        if streams:
            replies.append([part async for part in client.stream(body)])
        else:
            replies.append(await client.request(body))

    with trio.fail_after(WAIT):
        async with Daemon(settings) as daemon, trio.open_nursery() as nursery:
            server: Server = await nursery.start(serve, daemon)
            async with Client("x", daemons=daemon.query_addresses, codec=codec, timeout=WAIT) as client:
                await client.wait_for_providers(1, WAIT)
                async with trio.open_nursery() as calls:
                    for number in range(CALLS):
                        calls.start_soon(call, client, number)
                    await aeventually(lambda: server.stats.in_progress == CALLS)
                    cancelled.cancel()
                    await aeventually(lambda: next(iter(client.stats.providers.values())).state.value == "draining")
                    gate.set()
                assert client.stats.failed == 0
            assert len(replies) == CALLS
            if streams:
                assert replies == [[0, 1, 2]] * CALLS
    assert cancelled.cancelled_caught


@pytest.mark.slow
async def test_a_cancelled_server_gives_up_after_its_drain_timeout() -> None:
    async def never(body: Any) -> None:
        await trio.sleep_forever()

    with trio.fail_after(WAIT):
        async with (
            trio.open_nursery() as nursery,
            Server("x", never, drain_timeout=0.05) as server,
            Req(dial=server.address) as req,
        ):
            nursery.start_soon(req.arequest, b"")
            await aeventually(lambda: server.stats.in_progress == 1)
            nursery.cancel_scope.cancel()


def environ(monkeypatch: pytest.MonkeyPatch, daemon: str, *, article: bool) -> None:
    """Say by variables where the daemon is."""
    if article:
        monkeypatch.setenv("DISCOVERY_HOST", "127.0.0.1")
        monkeypatch.setenv("DISCOVERY_PORT", daemon.rpartition(":")[2])
    else:
        monkeypatch.setenv("NNGKIT_DISCOVERY", daemon)
    monkeypatch.setenv("NNGKIT_ZONE", "ny")
    monkeypatch.setenv("NNGKIT_PRIORITY", "3")
    monkeypatch.setenv("NNGKIT_DOMAIN", "staging")


SETTINGS = DaemonSettings(listen=(ANY,), query=(ANY,), deadline=1.0, interval=0.05, domain="staging")


@pytest.mark.parametrize("article", [False, True])
async def test_server_service_client_and_resolver_find_their_daemons_by_the_environment(
    article: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Daemon(SETTINGS) as daemon:
        environ(monkeypatch, daemon.addresses[0], article=article)
        monkeypatch.setenv("NNGKIT_QUERY", daemon.query_addresses[0])
        async with (
            Server("by-server", lambda body: body) as server,
            Service("by-service", "tcp://127.0.0.1:9", version="2", zone="london") as service,
            Resolver() as resolver,
            Client("by-server", timeout=WAIT) as client,
        ):
            await server.wait_for_daemons(1, WAIT)
            await service.wait_for_peers(1, WAIT)
            assert await client.request(b"hi") == b"hi"
            found = await resolver.find("by-service", WAIT)
            assert (found.zone, found.priority, found.version) == ("london", 3, "2")
            assert (server.provider.zone, server.provider.priority) == ("ny", 3)


def test_servers_for_asyncio_and_threads_read_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    with blocking.Daemon(SETTINGS) as daemon:
        environ(monkeypatch, daemon.addresses[0], article=False)
        monkeypatch.setenv("NNGKIT_QUERY", daemon.query_addresses[0])

        async def call() -> bytes:
            async with aio.Server("x", lambda body: body), aio.Client("x", timeout=WAIT) as client:
                return bytes(await client.request(b"hi"))

        assert asyncio.run(call()) == b"hi"
        with blocking.Server("y", lambda body: body), blocking.Client("y", timeout=WAIT) as client:
            assert client.request(b"hi") == b"hi"


async def test_what_is_given_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    environ(monkeypatch, "tcp://127.0.0.1:1", article=False)
    async with Server("x", lambda body: body, discovery=()) as alone:
        with pytest.raises(ConfigError, match="no daemon"):
            alone.provider  # noqa: B018
    async with Server("x", lambda body: body, priority=8, zone="london", domain="prod") as server:
        assert (server.provider.priority, server.provider.zone) == (8, "london")
    async with Service("x", "tcp://127.0.0.1:9", discovery="tcp://127.0.0.1:2") as service:
        assert (service.provider.priority, service.provider.zone) == (8, "")


async def test_without_variables_a_server_has_no_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NNGKIT_DISCOVERY", "NNGKIT_DISCOVERY_HOST", "DISCOVERY_HOST", "DISCOVERY_PORT"):
        monkeypatch.delenv(name, raising=False)
    async with Server("x", lambda body: body) as server:
        with pytest.raises(ConfigError, match="no daemon"):
            server.provider  # noqa: B018


@pytest.mark.parametrize("of", [Server, Service])
def test_a_variable_that_is_wrong_is_named(of: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNGKIT_DISCOVERY", "no address")
    with pytest.raises(ConfigError, match="NNGKIT_DISCOVERY"):
        of("x", "tcp://127.0.0.1:9" if of is Service else (lambda body: body))


@pytest.mark.parametrize("kind", ["task", "thread", "stream", "middleware"])
async def test_a_handler_that_closes_its_server_does_not_wait_for_itself(kind: str) -> None:
    begun, goes_on = trio.Event(), trio.Event()

    async def stop(body: Any) -> Any:
        await server.aclose()
        return body

    def in_thread(body: Any) -> Any:
        trio.from_thread.run(server.aclose)
        return body

    async def in_stream(body: Any) -> AsyncIterator[Any]:
        yield await stop(body)

    async def around(call: Any, proceed: Proceed) -> Reply:
        if not call.method:
            await server.aclose()
        return await proceed(call)

    async def other(body: Any) -> Any:
        begun.set()
        await goes_on.wait()
        return body

    handler: Any = {"task": stop, "thread": in_thread, "stream": in_stream, "middleware": echo}[kind]
    middleware = [around] if kind == "middleware" else []
    server = Server("answer", handler, codec="cbor", drain_timeout=1000 * WAIT, middleware=middleware)
    server.method("other")(other)
    replies: list[Any] = []
    with trio.fail_after(WAIT):
        async with server, direct(server, codec="cbor") as client, trio.open_nursery() as calls:

            async def call() -> None:
                replies.append(await client.request(2, method="other"))

            calls.start_soon(call)
            await begun.wait()
            replies.extend([part async for part in client.stream(1)] if kind == "stream" else [await client.request(1)])
            with pytest.raises(RemoteError, match="draining"):
                await client.request(3)
            goes_on.set()
        assert server.closed
    assert replies == [1, 2]


def test_a_handler_under_asyncio_closes_its_server() -> None:
    async def main() -> None:
        async def stop(body: bytes) -> bytes:
            await server.aclose()
            return body

        server = aio.Server("answer", stop, drain_timeout=1000 * WAIT)
        async with asyncio.timeout(WAIT), server, aio.Client("answer", addresses=server.address) as client:
            assert await client.request(b"1", timeout=WAIT) == b"1"

    asyncio.run(main())


def test_a_handler_of_a_program_without_a_loop_closes_its_server() -> None:
    def stop(body: bytes) -> bytes:
        server.close()
        return body

    with (
        blocking.Server("answer", stop, drain_timeout=1000 * WAIT) as server,
        blocking.Client("answer", addresses=server.address) as client,
    ):
        assert client.request(b"1", timeout=WAIT) == b"1"
