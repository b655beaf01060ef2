"""Discovery of peers by the names of their documents."""

from __future__ import annotations

import shutil
import tempfile

import pytest
import trio

from nngkit.discovery.daemon import Daemon
from nngkit.discovery.settings import DaemonSettings
from nngkit.documents import DocumentPeer
from nngkit.documents.sync.discovery import service_name
from nngkit.errors import ConfigError

PATIENCE = 20.0
HERE = "tcp://127.0.0.1:0"


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


async def test_discovery_requires_a_listener() -> None:
    with pytest.raises(ConfigError, match="listen="):
        async with DocumentPeer(discovery="tcp://127.0.0.1:5555"):
            raise AssertionError("entered")


def test_service_name_is_quoted_for_the_text_form() -> None:
    assert service_name("minutes/2026|ö") == "document/minutes/2026%7C%C3%B6"
    with pytest.raises(ConfigError, match="too long"):
        service_name("ö" * 40)
