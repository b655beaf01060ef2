"""`import nngkit` costs next to nothing, and its names come in when they are asked for."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

import nngkit

HEAVY = {"trio", "asyncio", "pynng", "cbor2", "rich", "typing", "socket", "ssl"}
BUDGET = 0.012  # seconds of CPU above a bare Python; trio alone is about 0.16, pynng about 0.08
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}


def python(script: str) -> str:
    command = [sys.executable, "-c", script]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30, env=ENVIRONMENT).stdout


def cpu(script: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    python(script)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_importing_nngkit_loads_no_event_loop_and_no_nng() -> None:
    loaded = "import json, sys; before = set(sys.modules); {}; print(json.dumps(sorted(set(sys.modules) - before)))"
    assert not HEAVY & set(json.loads(python(loaded.format("import nngkit"))))


def test_importing_nngkit_costs_at_most_12_ms_of_cpu() -> None:
    # By turns, and the least of several: what else runs on the machine then weighs on both sides, and only ever adds.
    bare, with_nngkit = [], []
    for _ in range(10):
        bare.append(cpu("pass"))
        with_nngkit.append(cpu("import nngkit"))
    assert min(with_nngkit) - min(bare) <= BUDGET


@pytest.mark.parametrize("name", nngkit.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(nngkit, name) is not None
    assert name in dir(nngkit)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = nngkit.Nonsense


@pytest.mark.parametrize("package", ["google_crc32c", "pyarrow"])
def test_each_door_to_the_journal_names_its_extra(package: str) -> None:
    hidden = f"""
import sys
sys.modules["{package}"] = None
from nngkit.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
    doors = (
        ("record", "j", "--stream", "a=pull listen=tcp://127.0.0.1:0"),
        ("journal", "ls", "j"),
        ("replay", "j", "pub", "--listen", "tcp://127.0.0.1:0"),
        ("discoverd", "--journal", "j", "--listen", "tcp://127.0.0.1:0", "--query", "tcp://127.0.0.1:0"),
    )
    for door in doors:
        command = [sys.executable, "-c", hidden, *door]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=ENVIRONMENT, check=False)
        name = "journal ls" if door[0] == "journal" else door[0]
        said = f"nngkit {name}: journal: {package} is not installed: pip install 'nngkit[journal]'\n"
        assert (done.returncode, done.stderr) == (2, said)


def test_each_door_to_documents_names_its_extra(tmp_path: Path) -> None:
    hidden = """
import sys
sys.modules["pycrdt"] = None
from nngkit.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
    for door in (
        ("doc", "cat", "minutes", "--dial", "tcp://127.0.0.1:1"),
        ("doc", "edit", "minutes", "--store", str(tmp_path / "docs")),
        ("record", str(tmp_path / "journal"), "--stream", "a=documents listen=tcp://127.0.0.1:0"),
    ):
        command = [sys.executable, "-c", hidden, *door]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=ENVIRONMENT, check=False)
        assert done.returncode == 2, done.stderr
        assert "pip install nngkit[documents]" in done.stderr
        assert done.stderr.count("\n") == 1


def test_discovery_without_a_loop_needs_no_extra() -> None:
    python("import sys; sys.modules['pycrdt'] = None; from nngkit.blocking import ServiceDiscovery")


def test_a_damaged_store_is_caught_as_damage() -> None:
    error = nngkit.StoreDamaged("docs.sqlite", "it has 3 bytes", "header")
    assert isinstance(error, nngkit.Damaged)
    assert str(error) == "docs.sqlite: header: it has 3 bytes"
    assert (error.path, error.why, error.what, error.where) == ("docs.sqlite", error.what, "it has 3 bytes", "header")
    assert (error.position, error.offset, error.advice) == (None, None, "")
