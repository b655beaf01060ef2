"""Service: replies to both kinds of queries, propagation of changes and goodbyes, and its end."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import textwrap
from typing import Any

import cbor2
import pytest
import trio

from nngkit import ConfigError, Service, ServiceDiscovery
from nngkit.discovery import Reason, State
from nngkit.discovery.messages import TEXT_QUERY, SurveyQuery, SurveyReply, TextReply, parse_survey_reply
from nngkit.protocols import Surveyor
from nngkit.testing import aeventually
from tests.discovery.peers import ROOT, WAIT, Watcher, found, program, states

ANY = "tcp://127.0.0.1:0"
HERE = "tcp://127.0.0.1:9000"
QUERY = SurveyQuery("test", 1).encode()


async def ask(surveyor: Surveyor, body: bytes, *, silent: bool = False) -> list[SurveyReply | TextReply]:
    """Return the replies of the only service; with `silent`, expect none."""
    await surveyor.await_for_peers(timeout=WAIT)
    timeout = 0.2 if silent else WAIT
    return [
        parse_survey_reply(reply.body) for reply in (await surveyor.asurvey(body, timeout=timeout, early=True)).replies
    ]


async def test_cbor_and_text_queries_get_replies_of_their_own_form() -> None:
    async with (
        Surveyor(listen=ANY) as article,
        Surveyor(listen=ANY) as ours,
        Service("answer", HERE, discovery=[article.address, ours.address], zone="z") as service,
    ):
        await service.wait_for_peers(2, timeout=WAIT)
        assert await ask(article, TEXT_QUERY) == [TextReply("answer", HERE)]
        assert await ask(article, TEXT_QUERY + b"\0") == [TextReply("answer", HERE)]
        (reply,) = await ask(ours, QUERY)
        assert isinstance(reply, SurveyReply)
        assert reply.providers == (service.provider,)
        assert service.provider.zone == "z"


async def test_priority_is_not_sent_to_a_version_1_daemon_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    old = cbor2.dumps({"v": 1, "type": "query", "daemon": "old", "round": 1})
    async with Surveyor(listen=ANY) as daemon, Service("answer", HERE, discovery=daemon.address, priority=1) as service:
        await daemon.await_for_peers(timeout=WAIT)
        for _ in range(3):
            (reply,) = (await daemon.asurvey(old, timeout=WAIT, early=True)).replies
            said = cbor2.loads(reply.body)
            assert said["v"] == 1
            assert said["providers"][0].keys() == {"name", "addr", "id", "epoch"}
        assert [record.levelname for record in caplog.records if "speaks version 1" in record.message] == ["WARNING"]
        (now,) = await ask(daemon, QUERY)
        assert isinstance(now, SurveyReply)
        assert (now.version, now.providers) == (2, (service.provider,))
        assert now.providers[0].priority == 1


async def test_text_query_is_ignored_on_a_connection_with_cbor_queries() -> None:
    async with Surveyor(listen=ANY) as daemon, Service("answer", HERE, discovery=daemon.address) as service:
        await service.wait_for_peers(timeout=WAIT)
        assert await ask(daemon, QUERY)
        assert await ask(daemon, TEXT_QUERY, silent=True) == []


async def test_invalid_queries_are_counted_and_not_answered() -> None:
    async with Surveyor(listen=ANY) as daemon, Service("answer", HERE, discovery=daemon.address) as service:
        await service.wait_for_peers(timeout=WAIT)
        nonsense = [b"", b"\0", b"service queries", b"\xff" * 100, b"\xa1\x61v\x01", b"\xbf", b"\xa0" * 60_000]
        await daemon.await_for_peers(timeout=WAIT)
        for body in nonsense:
            await daemon.asurvey(body, timeout=0.0)
        await aeventually(lambda: service.stats.bad == len(nonsense))
        assert len(await ask(daemon, QUERY)) == 1
        assert daemon.stats.received == 1


async def test_oversized_survey_closes_only_that_daemons_connection() -> None:
    async with (
        Surveyor(listen=ANY) as bad,
        Surveyor(listen=ANY) as good,
        Service("answer", HERE, discovery=[bad.address, good.address]) as service,
    ):
        await service.wait_for_peers(2, timeout=WAIT)
        await bad.await_for_peers(timeout=WAIT)
        await bad.asurvey(b"x" * 10_000_000, timeout=0.0)
        await aeventually(lambda: bad.stats.left)
        assert len(await ask(good, QUERY)) == 1
        await aeventually(lambda: service.stats.socket.left == 1)


async def test_daemons_may_start_in_any_order_and_restart() -> None:
    async with ServiceDiscovery(listen=ANY) as discovery:
        address = discovery.address
    async with Service("answer", HERE, discovery=address):
        for _ in range(2):
            async with ServiceDiscovery(listen=address, deadline=WAIT, interval=1000) as discovery:
                await aeventually(found(discovery))


async def test_update_reaches_the_daemon_at_once() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=WAIT, interval=1000) as discovery,
        Service("answer", HERE, discovery=discovery.address) as service,
        trio.open_nursery() as nursery,
    ):
        await aeventually(found(discovery))
        watcher = Watcher(discovery)
        nursery.start_soon(watcher.run)
        service.update(weight=7, zone="b", tags="gpu", version="2")
        await aeventually(lambda: discovery.resolve("answer").weight == 7)
        assert discovery.resolve("answer", tags="gpu") == service.provider
        service.drain()
        await watcher.wait(State.DRAINING)
        assert not found(discovery)()
        service.update(draining=False)
        await aeventually(found(discovery))
        nursery.cancel_scope.cancel()


async def test_draining_service_does_not_answer_text_queries() -> None:
    async with Surveyor(listen=ANY) as article, Service("answer", HERE, discovery=article.address) as service:
        await service.wait_for_peers(timeout=WAIT)
        service.drain()
        assert await ask(article, TEXT_QUERY, silent=True) == []


async def test_load_function_is_called_for_every_reply(caplog: pytest.LogCaptureFixture) -> None:
    loads: list[Any] = [1.5, 2.5, "no number", 3.5]
    async with (
        Surveyor(listen=ANY) as daemon,
        Service("answer", HERE, discovery=daemon.address, load=lambda: loads.pop(0)) as service,
    ):
        await service.wait_for_peers(timeout=WAIT)
        heard = []
        with caplog.at_level(logging.CRITICAL):
            for _ in range(4):
                (reply,) = await ask(daemon, QUERY)
                assert isinstance(reply, SurveyReply)
                heard.append(reply.providers[0].load)
        assert heard == [1.5, 2.5, 0.0, 3.5]
        service.update(load=9.0)
        (reply,) = await ask(daemon, QUERY)
        assert isinstance(reply, SurveyReply)
        assert reply.providers[0].load == 9.0


@pytest.mark.parametrize("how", ["leaving", "cancelled", "failing", "closed"])
async def test_service_says_goodbye_at_any_end_of_its_block(how: str) -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=WAIT, interval=1000) as discovery,
        trio.open_nursery() as nursery,
    ):
        watcher = Watcher(discovery)
        nursery.start_soon(watcher.run)
        with trio.CancelScope() as scope:
            try:
                async with Service("answer", HERE, discovery=discovery.address) as service:
                    await aeventually(found(discovery))
                    if how == "cancelled":
                        scope.cancel()
                        await trio.sleep_forever()
                    elif how == "failing":
                        raise ZeroDivisionError
                    elif how == "closed":
                        await service.aclose()
            except ZeroDivisionError:
                assert how == "failing"
        assert not found(discovery)()
        down = await watcher.wait(State.DOWN)
        assert [event.new for event in watcher.seen] == [State.UP, State.DRAINING, State.DOWN]
        assert [event.reason for event in watcher.seen[1:]] == [Reason.BYE, Reason.BYE]
        assert down.provider.name == "answer"
        nursery.cancel_scope.cancel()


async def test_query_during_leaving_does_not_bring_the_service_up_again() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=1, interval=0) as discovery,
        trio.open_nursery() as nursery,
    ):
        watcher = Watcher(discovery)
        nursery.start_soon(watcher.run)
        async with Service("answer", HERE, discovery=discovery.address):
            await aeventually(found(discovery))
        await watcher.wait(State.DOWN)
        after = [event.new for event in watcher.seen]
        assert after.count(State.UP) == 1
        nursery.cancel_scope.cancel()


async def test_sigterm_sends_a_goodbye_and_still_ends_the_process() -> None:
    async with (
        ServiceDiscovery(listen=ANY, deadline=WAIT, interval=1000) as discovery,
        trio.open_nursery() as nursery,
    ):
        watcher = Watcher(discovery)
        nursery.start_soon(watcher.run)
        with program("services", "answer", "3", discovery.address) as process:
            await aeventually(lambda: len(states(discovery)) == 3)
            process.terminate()
            assert await trio.to_thread.run_sync(process.wait) == -signal.SIGTERM
        await aeventually(lambda: set(states(discovery).values()) == {State.DOWN})
        assert {row.reason for row in discovery.view()} == {Reason.BYE}
        nursery.cancel_scope.cancel()


def test_sigterm_handler_of_the_program_is_kept() -> None:
    code = textwrap.dedent("""
        import os, signal, sys, trio
        from nngkit import Service

        async def main():
            signal.signal(signal.SIGTERM, mine := lambda *_: print("mine", flush=True))
            async with Service("answer", "tcp://127.0.0.1:9000", discovery="tcp://127.0.0.1:1"):
                assert signal.getsignal(signal.SIGTERM) is mine
                os.kill(os.getpid(), signal.SIGTERM)
                await trio.sleep(0.1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            async with Service("answer", "tcp://127.0.0.1:9000", discovery="tcp://127.0.0.1:1"):
                assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
            async with Service("answer", "tcp://127.0.0.1:9000", discovery="tcp://127.0.0.1:1", sigterm=False):
                assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

        trio.run(main)
    """)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "mine\n", "")


@pytest.mark.parametrize(
    ("arguments", "says_what"),
    [
        ({"name": "a|b"}, "name has a '|'"),
        ({"name": ""}, "name is empty"),
        ({"address": "9000"}, "address is not scheme"),
        ({"address": "tcp://*:9000"}, "others cannot call this"),
        ({"address": "tcp://0.0.0.0:9000"}, "others cannot call this"),
        ({"address": "tcp://[::]:9000"}, "others cannot call this"),
        ({"address": "tcp://127.0.0.1:0"}, "others cannot call this"),
        ({"address": "tcp://127.0.0.1:port"}, "Port could not be cast"),
        ({"discovery": ()}, "no daemon"),
        ({"weight": -1}, "weight is not"),
        ({"load": float("nan")}, "load is not"),
        ({"tags": ["x"] * 3 + [""]}, "tag is empty"),
    ],
)
def test_invalid_arguments_raise_config_error(arguments: dict[str, Any], says_what: str) -> None:
    with pytest.raises(ConfigError, match=says_what):
        Service(**{"name": "answer", "address": HERE, "discovery": "tcp://127.0.0.1:1", **arguments})


async def test_longest_name_of_the_wire_format_is_accepted() -> None:
    name = "ß" * 64
    async with (
        ServiceDiscovery(listen=ANY, deadline=WAIT, interval=1000) as discovery,
        Service(name, HERE, discovery=discovery.address),
    ):
        await aeventually(found(discovery, name))


async def test_invalid_daemon_address_raises_config_error() -> None:
    with pytest.raises(ConfigError, match=r"127\.0\.0\.1:5555: not an address"):
        async with Service("answer", HERE, discovery="127.0.0.1:5555"):
            pass


@pytest.mark.parametrize(
    "address", ["ipc:///tmp/x.sock", "inproc://x", "abstract://x", "ws://host:80/path", "wss://host"]
)
def test_addresses_without_a_port_are_callable(address: str) -> None:
    assert Service("answer", address, discovery="tcp://127.0.0.1:1").provider.address == address
