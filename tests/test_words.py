"""The words of the project: retired terms stay away, and a docstring begins with what it describes or does.

docs/glossary.md has the terms; RETIRED has the words that they replace. The rule holds for every source file and page.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

PATTERNS = [
    *("dev.py", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "nngkit/**/*.py", "protocols/*.py", "tests/**/*.py"),
    *("docs/**/*.md", "docs/**/*.py", "benchmarks/*.py", "examples/**/*.py", "examples/**/*.md"),
    *("nngkit/web/doc/*.js", "nngkit/web/doc/page/*.js", "nngkit/web/doc/tests/*.js"),
]
BUILT = {"node_modules", "static", "site"}  # folders with generated files

RETIRED = {  # a regular expression of whole words, also between underscores, and the term that replaces it
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
# No syntax tree is made of 1,100 files: a text in triple quotes that begins its line is a docstring.
WRONG_START = re.compile(r'^[ \t]*r?"""\s*(Wh(?:at|om?|ose|ere|ich|ether)|Somebody|Everybody|Nobody)\b.*', re.MULTILINE)
FIRST = "[abdegnorstw]"  # letters, one of which begins each: looked for first, it takes a third of the time
OLD = re.compile(rf"(?<![a-z])(?={FIRST})(?:{'|'.join(f'({pattern})' for pattern in RETIRED)})(?![a-z])")
EXEMPT = {Path(__file__), ROOT / "docs/upgrading.md", ROOT / "tests/upgrading/record.py"}  # with the names of before
FILES = sorted(
    {path for pattern in PATTERNS for path in ROOT.glob(pattern) if not BUILT & set(path.relative_to(ROOT).parts)}
    - EXEMPT
)


def retired(text: str) -> Iterator[str]:
    for match in OLD.finditer(text.lower()):
        number = text.count("\n", 0, match.start()) + 1
        new = list(RETIRED.values())[next(index for index, group in enumerate(match.groups()) if group)]
        yield f"line {number}: {text[match.start() : match.end()]!r} (say: {new})"


def test_no_retired_word_is_left() -> None:
    found = [f"{path.relative_to(ROOT)}, {each}" for path in FILES for each in retired(path.read_text())]
    assert not found, "\n".join(found)


def test_a_docstring_begins_with_a_verb_or_a_noun() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {match[0].strip()}"
        for path in FILES
        if path.suffix == ".py"
        for match in WRONG_START.finditer(path.read_text())
    ]
    assert not found, "\n".join(found)


def test_a_docstring_that_begins_with_a_pronoun_is_found() -> None:
    text = 'def one():\n    r"""Who asks."""\n\n\ndef two():\n    """Whole."""\n\n\nTEXT = """What"""\n'
    assert [match[1] for match in WRONG_START.finditer(text)] == ["Who"]


def test_retired_words_are_found_in_any_case_and_as_whole_words_only() -> None:
    assert list(retired("A Bell rings\nbeaten, labelled, dialer\nwith_nobody = 1\nfor the one who waits")) == [
        "line 1: 'Bell' (say: wake-up)",
        "line 3: 'nobody' (say: a peer, all peers, no peer, the caller ...)",
        "line 4: 'one who' (say: a peer that ...)",
    ]
