"""Tables are for their owner only, as the journal is, unless files are shared."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from nngkit.file_modes import VARIABLE
from nngkit.lakehouse import export
from tests.fanout.journals import numbers, write


@pytest.mark.slow
@pytest.mark.parametrize("shared", [False, True])
async def test_an_iceberg_table_is_for_its_owner_only_unless_it_is_shared(
    shared: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "1" if shared else "")
    before = os.umask(0o022)
    try:
        await write(tmp_path / "journal", numbers(0, 10))
        export(tmp_path / "journal", tmp_path / "lake" / "table", "iceberg")
    finally:
        os.umask(before)
    assert modes_in(tmp_path) == ({0o755, 0o644} if shared else {0o700, 0o600})


def modes_in(folder: Path) -> set[int]:
    return {path.stat().st_mode & 0o777 for path in folder.rglob("*")}
