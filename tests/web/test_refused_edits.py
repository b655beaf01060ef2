"""Edits that a peer in Python cannot store, made by programs with Yjs: told, and not relayed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import trio

from nngkit.documents import Document, DocumentPeer
from nngkit.testing import aeventually
from tests.web.homes import KEY, peer
from tests.web.pages import SOURCES, built_page

pytestmark = [pytest.mark.slow, pytest.mark.needs_program("node", package="nodejs")]
STORED = {
    "value 32 deep": "later plain 😀 ",
    "formatted text": "later boldplain 😀 ",
    "2^60": "later plain 😀 ",
}


async def has_text(document: Document, text: str) -> None:
    await aeventually(lambda: str(document.text("body")) == text, what=document.name)


async def test_each_kind_is_refused_shown_and_kept_from_other_peers(tmp_path: Path) -> None:
    built_page()
    async with (
        peer(store=tmp_path / "docs.sqlite", relay=True) as home,
        DocumentPeer(join=home.repair_addresses[0], token=KEY, accept=lambda _: True) as other,
    ):
        command = ["node", "--experimental-websocket", "tests/kinds.js", home.repair_addresses[0], KEY]
        with trio.fail_after(40):
            done = await trio.run_process(command, cwd=SOURCES, capture_stdout=True, stderr=subprocess.DEVNULL)
        said = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(said) == 28
        for one in said:
            stored = STORED.get(one["kind"])
            told = (one["code"], one["saved"], one["own"])
            assert told == ((None, True, 0) if stored else ("refused", False, 2)), one
            assert stored or one["why"], one
            await has_text(home.documents[one["doc"]], stored or "plain 😀 ")
        await aeventually(
            lambda: all(other.documents[name].digest() == doc.digest() for name, doc in home.documents.items())
        )
        refused = {one.what.removeprefix("document ") for one in home.refusals}
        unchecked = {one["doc"] for one in said if not one["checked"]}
        assert refused == unchecked | {"half a character deleted", "text inside a character"}
        assert other.refusals == ()
