"""`import nngkit` is cheap, and its public names are imported lazily."""

import json
import os
import re
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


@pytest.mark.slow
def test_importing_nngkit_costs_at_most_12_ms_of_cpu() -> None:
    # Alternating, and the minimum of several: other load affects both sides, and only adds.
    bare, with_nngkit = [], []
    for _ in range(10):
        bare.append(cpu("pass"))
        with_nngkit.append(cpu("import nngkit"))
    assert min(with_nngkit) - min(bare) <= BUDGET


@pytest.mark.parametrize("name", nngkit.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(nngkit, name) is not None
    assert name in dir(nngkit)


SHADOWED = """
import importlib, pkgutil, sys, types
import nngkit
names = ["nngkit", *(each.name for each in pkgutil.walk_packages(nngkit.__path__, "nngkit.") if each.ispkg)]
modules = {name: importlib.import_module(name) for name in names}
for name, package in modules.items():
    for below in {each.name for each in pkgutil.iter_modules(package.__path__)} & {*getattr(package, "__all__", ())}:
        importlib.import_module(f"{name}.{below}")
        print(name, below, type(getattr(package, below)).__name__)
"""


@pytest.mark.slow
def test_no_public_name_is_replaced_by_the_module_of_that_name() -> None:
    assert python(SHADOWED) == "nngkit.spark session function\n"


def test_unknown_name_raises_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = nngkit.Nonsense  # type: ignore[attr-defined]


HIDDEN = """
import sys
for package in sys.argv.pop(1).split():
    sys.modules[package] = None
from nngkit.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
ANY = "tcp://127.0.0.1:0"
SUBMIT = ("spark", "submit", "--master", "spark://127.0.0.1:1", "run", "rates", "--journal", "j")
RUN = ("spark", "run", "rates", "--journal", "j")
COMMANDS = {  # name -> command, feature, missing package, extra
    "record": (("record", "j", "--stream", f"a=pull listen={ANY}"), "journal", "google_crc32c", "journal"),
    "record without Parquet": (("record", "j", "--stream", f"a=pull listen={ANY}"), "journal", "pyarrow", "journal"),
    "journal": (("journal", "ls", "j"), "journal", "google_crc32c", "journal"),
    "journal without Parquet": (("journal", "ls", "j"), "journal", "pyarrow", "journal"),
    "replay": (("replay", "j", "pub", "--listen", ANY), "journal", "google_crc32c", "journal"),
    "replay without Parquet": (("replay", "j", "pub", "--listen", ANY), "journal", "pyarrow", "journal"),
    "discoverd": (("discoverd", "--journal", "j", "--listen", ANY, "--query", ANY), "journal", "pyarrow", "journal"),
    "watch": (("watch", "--template", "minutes.txt", "--out", "o"), "templates", "jinja2", "template"),
    "doc cat": (("doc", "cat", "minutes", "--join", ANY), "documents", "pycrdt", "documents"),
    "doc import": (("doc", "import", "minutes.txt", "--store", "s"), "documents", "pycrdt", "documents"),
    "doc serve": (("doc", "serve", "home", "--listen", "ws://127.0.0.1:0"), "documents", "pycrdt", "documents"),
    "record documents": (
        ("record", "j", "--stream", f"a=documents listen={ANY}"),
        "documents",
        "pycrdt",
        "documents",
    ),
    "spark run": (RUN, "Spark", "pyspark", "spark"),
    "spark run without pandas": (RUN, "Spark", "pandas", "spark"),
    "spark run without checksums": (RUN, "journal", "google_crc32c", "journal"),
    "spark run documents": (
        ("spark", "run", "documents", "--journal", "j", "--output", "o"),
        "Spark",
        "pycrdt",
        "documents",
    ),
    "spark submit": (SUBMIT, "Spark", "pyspark", "spark"),
    "trust new": (("trust", "new", "farm"), "trust", "cryptography", "trust"),
    "spark pack": (("spark", "pack", "env.tar.gz"), "Spark", "packaging", "spark"),
}


QUICK = ("record", "doc cat", "watch", "spark run")  # one for each extra


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in COMMANDS]
)
def test_each_command_names_the_extra_that_it_needs(name: str, tmp_path: Path) -> None:
    argv, what, package, extra = COMMANDS[name]
    (tmp_path / "minutes.txt").write_text("text")
    command = [sys.executable, "-c", HIDDEN, package, *argv]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=30, env=ENVIRONMENT, check=False, cwd=tmp_path
    )
    action = argv[1] if argv[0] in ("doc", "spark", "journal", "trust") else ""
    where = f"nngkit {argv[0]} {action}".rstrip()
    said = f"{where}: {what}: {package} is not installed: pip install 'nngkit[{extra}]'\n"
    assert (done.returncode, done.stderr) == (2, said)


@pytest.mark.parametrize(
    ("package", "script"),
    [
        ("pycrdt", "from nngkit.documents import Document; Document('minutes')"),
        (
            "pycrdt",
            "import nngkit.blocking as b\nwith b.DocumentPeer(listen='inproc://a') as peer: peer.open('minutes')",
        ),
        ("pyspark", "from nngkit.spark import session\nwith session(): pass"),
        ("pyarrow", "import nngkit.spark; nngkit.spark.register(None)"),
        ("google_crc32c", "import nngkit.journal"),
        ("cryptography", "from nngkit.trust import Realm"),
    ],
    ids=["Document", "DocumentPeer", "session", "register", "journal", "Realm"],
)
def test_each_python_entry_point_names_the_extra_that_it_needs(package: str, script: str) -> None:
    hidden = f"import sys; sys.modules[{package!r}] = None\n{script}"
    command = [sys.executable, "-c", hidden]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=ENVIRONMENT, check=False)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert re.fullmatch(rf"nngkit\.errors\.ConfigError: \w+: {package} is not installed: .*'nngkit\[\w+\]'", last), last


def test_discovery_without_a_loop_needs_no_extra() -> None:
    python("import sys; sys.modules['pycrdt'] = None; from nngkit.blocking import ServiceDiscovery")


def test_store_damaged_is_a_damaged_error() -> None:
    error = nngkit.StoreDamaged("docs.sqlite", "it has 3 bytes", "header")
    assert isinstance(error, nngkit.Damaged)
    assert str(error) == "docs.sqlite: header: it has 3 bytes; `nngkit doc recover` copies what is intact"
    assert (error.path, error.why, error.what, error.where) == ("docs.sqlite", error.what, "it has 3 bytes", "header")
    assert (error.position, error.offset, error.advice) == (None, None, "`nngkit doc recover` copies what is intact")
