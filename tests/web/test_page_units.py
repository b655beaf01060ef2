"""Parts of the page that need no browser, tested under Node: wire, digest, replica, strings, names.

And the line protocol of tests/schedule.js, by which schedules of Python let real Yjs take part.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from nngkit.documents.document import Document
from nngkit.documents.engine.interface import load_engine
from nngkit.documents.names import check_name
from nngkit.documents.shared import Array, Map, Text
from nngkit.errors import ConfigError
from tests.documents.schedules import edit
from tests.documents.test_engine import VECTORS, fill
from tests.web.pages import SOURCES, built_page

pytestmark = pytest.mark.needs_program("node", package="nodejs")


@pytest.fixture(scope="module", autouse=True)
def packages() -> None:
    """Require the page's dependencies, which the tests import."""
    built_page()


FILES = sorted(path.name for path in (SOURCES / "tests").glob("*.test.js"))
LONG = {"replica.test.js": "/^(?!schedule|held edits)[^<]*$/"}  # all but its tests of seconds; `<root>` is Node's


@pytest.mark.parametrize(
    ("name", "tests"),
    [
        *((name, LONG.get(name, "/./")) for name in FILES),
        *(pytest.param(name, "/./", marks=pytest.mark.slow) for name in LONG),
    ],
    ids=[*FILES, *(f"all of {name}" for name in LONG)],
)
def test_node_tests_pass(name: str, tests: str, tmp_path: Path) -> None:
    made = tmp_path / "made.json"
    made.write_text(json.dumps(list(made_in_python())))
    judged = tmp_path / "judged.json"
    judged.write_text(json.dumps([{"name": name, "why": why_not(name)} for name in NAMES]))
    environment = os.environ | {"NNGKIT_DIGESTS": str(made), "NNGKIT_NAMES": str(judged)}
    command = ["node", "--test", "--test-reporter=tap", f"--test-name-pattern={tests}", f"tests/{name}"]
    done = subprocess.run(command, cwd=SOURCES, env=environment, capture_output=True, text=True, timeout=55)
    assert done.returncode == 0, failures(done.stdout) + done.stderr[-2000:]
    passed = re.search(r"^# pass (\d+)$", done.stdout, re.MULTILINE)
    assert passed is not None
    least = {"digest.test.js": 75, "names.test.js": len(NAMES), "guest.test.js": 4}.get(name, 5)
    assert int(passed[1]) >= least, "a file whose tests are not found passes too"


# Some of each kind, alone and in a path: control, format, space, surrogate, private, unassigned, and printable.
CHARACTERS = "a\0\n\x7f\x85\xa0\xad\u2003\u200b\u2028\u2029\u202e\u3000\ud800\udfff\ue000\U000e0001\uffff é中😀.\\/"
NAMES = [
    pattern.replace("?", character) for character in CHARACTERS for pattern in ("?", "x?y", "x/?", "?/x", "x//?")
] + ["", "..", "...", "a/../b", "x" * 200, "x" * 201, "é" * 100, "é" * 101]


def why_not(name: str) -> str | None:
    """Return Python's verdict on a document's name; None for a valid one."""
    try:
        check_name(name)
    except ConfigError as error:
        return str(error).rpartition(": ")[2]
    return None


def failures(report: str) -> str:
    """Return the failures in a TAP report."""
    return "".join(part[:3000] for part in report.split("# Subtest: ") if "\nnot ok" in part) or report[-3000:]


def made_in_python() -> Iterator[dict[str, str]]:
    """Return documents of every kind of content, whose digests Yjs must reproduce."""
    numbers = [
        0,
        -1,
        2**31,
        2**53 - 1,
        2**53,
        2**53 + 1,
        -(2**53) - 1,
        2**62 + 1,
        2**60,
        10**18,
        0.5,
        -0.0,
        1e300,
        5e-324,
    ]
    values: dict[str, Any] = {
        "nothing": None,
        "flags": [True, False],
        "numbers": numbers,
        "no numbers": [float("nan"), float("inf"), float("-inf")],
        "texts": ["", "é", "中", "👩‍🚀", "\0"],
        "bytes": [b"", bytes(range(256))],
        "plain": {"": 1, "～": 2, "😀": 3, "é": [{"z": None}]},
        "shared": Map({"text": Text("é😀"), "empty": Text(""), "list": Array([1, Map({})])}),
    }
    for why, value in values.items():
        document = Document("d")
        document.map("map")["key"] = value
        document.array("array").append("before")
        document.text("body").insert(0, "😀 x")
        yield {"why": why, "update": document.engine.changes_since().hex(), "digest": document.digest().hex()}
    for vector in VECTORS:
        made = load_engine().new()
        for name, value in vector["content"].items():
            fill(
                made.root(name, "text" if isinstance(value, str) else "array" if isinstance(value, list) else "map"),
                value,
            )
        yield {"why": vector["why"], "update": made.changes_since().hex(), "digest": vector["digest"]}
    rng = Random("made in Python")
    content = load_engine().new(7)
    for number in range(50):
        edit(content, rng, str(number))
        yield {"why": f"edit {number}", "update": content.changes_since().hex(), "digest": content.digest().hex()}


def run(*commands: dict[str, Any]) -> list[Any]:
    """Return the replies of a page without a browser."""
    lines = "".join(json.dumps(command) + "\n" for command in commands)
    command = ["node", str(SOURCES / "tests" / "schedule.js")]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


START = {"do": "start", "now": 0, "doc": "d", "origin": "0102030405060708", "epoch": 1, "client": 7, "seed": 1}
HOME = {"do": "connected", "now": 0, "home": ["ff00000000000000", 1], "max_update": 1 << 20}


def test_schedule_counts_code_points_and_replies_once_to_each_line() -> None:
    answers = run(
        START,
        {"do": "edit", "now": 0, "edit": ["insert", "text", 0, "a😀b"]},
        {"do": "edit", "now": 0, "edit": ["insert", "text", 2, "中"]},
        {"do": "edit", "now": 0, "edit": ["delete", "text", 1, 1]},
        {"do": "edit", "now": 0, "edit": ["set", "map", "k", [1, None]]},
        {"do": "nonsense", "now": 0},
        {"do": "state", "now": 0},
    )
    assert len(answers) == 7
    assert "nonsense" in answers[5]["error"]
    state = answers[6]
    assert state["value"] == {"text": "a中b", "map": {"k": [1, None]}, "array": []}
    assert (state["versions"], state["own"]) == ([["0102030405060708", 1, 4]], 4)


def test_schedule_is_deterministic() -> None:
    commands = [START, HOME, *({"do": "edit", "now": number, "edit": ["random"]} for number in range(50))]
    first, second = (run(*commands, {"do": "state", "now": 50}) for _ in range(2))
    assert first == second
    assert len(first[-1]["value"]["text"]) > 5
    other = run(START | {"seed": 2}, *commands[1:], {"do": "state", "now": 50})
    assert other[-1]["content"] != first[-1]["content"]


def test_schedule_restarts_with_the_stored_state() -> None:
    restart = {"do": "restart", "now": 2, "epoch": 2, "client": 8}
    commands = [START, {"do": "edit", "now": 0, "edit": ["insert", "text", 0, "one"]}, {"do": "kept", "now": 0}]
    commands += [{"do": "edit", "now": 1, "edit": ["insert", "text", 3, "two"]}]
    for crash, text in ((False, "onetwo"), (True, "one")):
        state = run(*commands, restart | {"crash": crash}, {"do": "state", "now": 3})[-1]
        assert state["value"]["text"] == text
    new = run(*commands, restart, HOME, {"do": "edit", "now": 3, "edit": ["insert", "text", 0, "x"]})
    assert new[-2]["ask"][0]["id"] == 1
    assert bytes.fromhex(new[-1]["bus"][0]).startswith(bytes.fromhex("85 00 82 48 0102030405060708 02"))
