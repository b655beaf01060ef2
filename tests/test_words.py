"""The words of the project: retired terms stay away, and a docstring begins with what it describes or does.

docs/glossary.md has the terms; RETIRED has the words that they replace. The rule holds for the rooms in HELD: a room
that has been rewritten is added there, a line each.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Files of each room; a path is of the last room that names it.
ROOMS = {
    "protocols": ["protocols/**/*.py", "tests/protocols/**/*.py", "docs/protocols.md", "docs/nng.md", "docs/nng/*.py"],
    "discovery": ["nngkit/discovery/**/*.py", "tests/discovery/**/*.py", "docs/discovery.md"],
    "documents": ["nngkit/documents/**/*.py", "tests/documents/**/*.py", "docs/documents.md"],
    "devices": ["nngkit/devices/**/*.py", "tests/devices/**/*.py", "docs/devices.md"],
    "journal": [
        *("nngkit/journal/**/*.py", "nngkit/recording/**/*.py", "tests/journal/**/*.py"),
        *("tests/recording/**/*.py", "docs/journal.md"),
    ],
    "spark": ["nngkit/spark/**/*.py", "tests/spark/**/*.py", "docs/pipeline.md"],
    "web": ["nngkit/web/**/*.py", "tests/web/**/*.py"],
    "cli": ["nngkit/cli/**/*.py", "tests/cli/**/*.py", "docs/command.md", "docs/tools.md"],
    "top": [
        *("nngkit/*.py", "tests/test_blocking.py", "tests/test_background.py", "tests/test_imports.py"),
        *("tests/test_envelope.py", "tests/test_errors.py", "docs/wire.md"),
    ],
    "benchmarks": [
        "benchmarks/*.py",
        "tests/test_benchmarks.py",
        "tests/test_replay_trace.py",
        "tests/traces.py",
        "docs/benchmarks.md",
    ],
    "examples": ["examples/**/*.py", "examples/**/*.md", "docs/examples.md", "tests/test_examples.py"],
    "architecture": ["docs/architecture.md"],
    "testing": ["nngkit/testing/*.py", "tests/testing/*.py", "docs/testing-your-code.md"],
    "site": [
        *("dev.py", "README.md", "CHANGELOG.md", "tests/conftest.py", "docs/*.py", "docs/snippets/*.py"),
        *("docs/reference/*.md", "docs/index.md", "docs/from-*.md", "docs/glossary.md"),
        *("docs/testing.md", "tests/test_dev.py", "tests/test_docs.py"),
        *("tests/test_house_rules.py", "tests/test_packaging.py", "tests/test_readme.py"),
        *("tests/test_types.py",),
    ],
}

HELD = [
    "site",
    "testing",
]

RETIRED = {  # a regular expression, bounded by words, and the term that replaces it
    r"(?:door)?bells?": "wake-up",
    r"beats?": "heartbeat",
    r"rung": "woken",
    r"diall(?:er|ers|ed|ing)": "dialer, dialed, dialing",
    r"ghosts?": "an entry without a provider",
    r"who (?:can|cannot|does|has|is|was|comes|asks|sends|waits)": "the peer, the caller, the connection that ...",
    r"(?:one|those|anybody|everybody|somebody|nobody) who": "a peer that ...",
    r"somebody|everybody|nobody|whoever": "a peer, all peers, no peer, the caller ...",
    r"said again": "renewed",
    r"askers?": "requester",
    r"nothing of ours": "no module of nngkit",
}
NO_FIRST_WORD = {"What", "Who", "Whom", "Whose", "Where", "Which", "Whether", "Somebody", "Everybody", "Nobody"}
OLD = re.compile(r"\b(?:" + "|".join(f"({pattern})" for pattern in RETIRED) + r")\b", re.IGNORECASE)
EXEMPT = {Path(__file__)}


def files(room: str) -> list[Path]:
    found = {path for pattern in ROOMS[room] for path in ROOT.glob(pattern) if path.is_file()}
    return sorted(found - EXEMPT)


def retired(text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        for match in OLD.finditer(line):
            new = list(RETIRED.values())[next(index for index, group in enumerate(match.groups()) if group)]
            yield f"line {number}: {match[0]!r} (say: {new})"


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            docstring := ast.get_docstring(node)
        ):
            yield getattr(node, "lineno", 1), docstring


@pytest.mark.parametrize("room", HELD)
def test_no_retired_word_is_left(room: str) -> None:
    found = [f"{path.relative_to(ROOT)}, {each}" for path in files(room) for each in retired(path.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("room", HELD)
def test_a_docstring_begins_with_a_verb_or_a_noun(room: str) -> None:
    found = []
    for path in files(room):
        if path.suffix == ".py":
            for line, docstring in docstrings(path.read_text()):
                if re.split(r"\W", docstring, maxsplit=1)[0] in NO_FIRST_WORD:
                    found.append(f"{path.relative_to(ROOT)}, line {line}: {docstring.splitlines()[0]}")
    assert not found, "\n".join(found)


def test_every_file_belongs_to_a_room() -> None:
    listed = {path for room in ROOMS for path in files(room)} | EXEMPT
    ours = {
        path
        for pattern in ("nngkit/**/*.py", "protocols/*.py", "tests/**/*.py", "docs/**/*.md")
        for path in ROOT.glob(pattern)
    }
    built = {path for path in ours if {"node_modules", "static"} & set(path.parts) or "nngkit/protocols" in str(path)}
    left = {str(path.relative_to(ROOT)) for path in ours - listed - built}
    assert not {path for path in left if not path.startswith("tests/typed/")}


def test_retired_words_are_found_in_any_case_and_as_whole_words_only() -> None:
    assert list(retired("A Bell rings\nbeaten, labelled, dialer\nfor the one who waits")) == [
        "line 1: 'Bell' (say: wake-up)",
        "line 3: 'one who' (say: a peer that ...)",
    ]
