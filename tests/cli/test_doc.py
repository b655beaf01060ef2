"""`nngkit doc` as a process: storing, printing, import and export, status, serving."""

from __future__ import annotations

import json
import os
import re
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from nngkit.cli.doc.content import bring, check
from nngkit.documents import Array, Document, Map, Text
from nngkit.documents.store import Store
from tests.cli.certificates import issue
from tests.cli.commands import ROOT, WAIT, assert_fails, environment, nngkit, valid
from tests.cli.processes import Running
from tests.trust.one_realm import FARM, OneRealm

ANY = "ws://127.0.0.1:0"
TEXT = "Zeile eins\n漢字 😀 é\n"


def doc(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run it, assert success, and return its output."""
    done = nngkit("doc", *map(str, arguments), **variables)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Create a store with the document `minutes`, whose text is TEXT."""
    (tmp_path / "minutes.txt").write_text(TEXT)
    path = tmp_path / "docs.sqlite"
    doc("import", tmp_path / "minutes.txt", "--store", path)
    return path


@pytest.fixture
def home(tmp_path: Path) -> Iterator[str]:
    """Run `doc serve` without a page; yield its join address."""
    with serving(tmp_path / "home") as (_, join):
        yield join


@contextmanager
def serving(folder: Path, *more: str) -> Iterator[tuple[Running, str]]:
    """Run `doc serve FOLDER`; yield the process and its join address, with the token that it made."""
    with Running("doc", "serve", str(folder), "--listen", ANY, "--no-page", "--name", "home", "--json", *more) as one:
        told = valid(one.line(), "doc.json")
        secret = f"#token={Path(told['token_file']).read_text().strip()}" if told["token_file"] else ""
        yield one, f"{told['join'][0]}{secret}"


# ---- one disk


def test_an_imported_text_is_printed_unchanged(store: Path) -> None:
    assert doc("cat", "minutes", "--store", store).stdout == TEXT
    assert json.loads(doc("cat", "minutes", "--json", "--store", store).stdout) == {"body": TEXT}


@pytest.mark.slow
def test_an_import_makes_minimal_edits(store: Path, tmp_path: Path) -> None:
    before = sizes(store)
    file = tmp_path / "minutes.txt"
    assert valid(doc("import", file, "--store", store, "--json").stdout, "doc.json")["changed"] is False
    assert sizes(store) == before
    file.write_text(TEXT.replace("😀", "😎😀"))
    assert valid(doc("import", file, "--store", store, "--json").stdout, "doc.json")["changed"] is True
    assert doc("cat", "minutes", "--store", store).stdout == TEXT.replace("😀", "😎😀")
    [added] = sizes(store)[len(before) :]
    assert added < 60  # one edit of one character


def sizes(path: Path) -> list[int]:
    with Store.open(path) as opened:
        return [entry.size for entry in opened.log("minutes")]


def test_the_log_has_sittings_or_edits_and_the_versions(store: Path) -> None:
    saved = valid(doc("save", "minutes", "first draft", "--store", store, "--json").stdout, "doc.json")
    assert saved["version"] == "first draft"
    lines = [
        valid(line, "doc-log.json") for line in doc("log", "minutes", "--store", store, "--json").stdout.splitlines()
    ]
    assert [(line["event"], line["edits"]) for line in lines] == [("sitting", 1), ("version", 1)]
    assert lines[0]["here"] is True
    [edit, _] = doc("log", "minutes", "--each", "--store", store, "--json").stdout.splitlines()
    assert valid(edit, "doc-log.json")["number"] == 1
    told = doc("log", "minutes", "--store", store).stdout
    assert re.search(r"\(here\): 1 edit, \d+ bytes\n.*version 'first draft'", told)


@pytest.mark.slow
def test_a_saved_version_can_be_read(store: Path, tmp_path: Path) -> None:
    doc("save", "minutes", "one", "--store", store)
    (tmp_path / "minutes.txt").write_text("")
    doc("import", tmp_path / "minutes.txt", "--store", store)
    assert doc("cat", "minutes", "--json", "--store", store).stdout == "{}\n"
    assert doc("cat", "minutes", "--at", "one", "--store", store).stdout == TEXT
    [line] = doc("versions", "minutes", "--store", store, "--json").stdout.splitlines()
    assert valid(line, "doc.json")["version"] == "one"
    assert_fails(nngkit("doc", "cat", "minutes", "--at", "two", "--store", str(store)), 1, "no version 'two'")
    assert_fails(nngkit("doc", "save", "minutes", "one", "--store", str(store)), 2, "a version 'one' already")


@pytest.mark.slow
def test_compaction_keeps_the_content(store: Path) -> None:
    [line] = doc("compact", "--store", store, "--json").stdout.splitlines()
    told = valid(line, "doc.json")
    assert (told["document"], told["records"]) == ("minutes", 1)
    assert doc("cat", "minutes", "--store", store).stdout == TEXT
    assert_fails(nngkit("doc", "compact", "nothing", "--store", str(store)), 1, "no document 'nothing'")


def test_intact_documents_of_a_damaged_store_are_recovered(store: Path, tmp_path: Path) -> None:
    whole = valid(doc("recover", store, tmp_path / "copy", "--json").stdout, "doc.json")
    assert (whole["whole"], whole["documents"][0]["document"]) == (True, "minutes")
    assert doc("cat", "minutes", "--store", tmp_path / "copy").stdout == TEXT
    data = bytearray(store.read_bytes())
    at = data.index("漢".encode())
    data[at] ^= 1
    store.write_bytes(data)
    assert_fails(nngkit("doc", "cat", "minutes", "--store", str(store)), 1, str(store))
    lost = nngkit("doc", "recover", str(store), str(tmp_path / "rest"))
    assert lost.returncode == 1
    assert "minutes: 0 records kept, 1 lost" in lost.stdout
    assert_fails(nngkit("doc", "recover", str(store), str(tmp_path / "rest")), 2, "rest")


@pytest.mark.slow
def test_one_damaged_document_stops_no_other(store: Path, tmp_path: Path) -> None:
    (tmp_path / "table.txt").write_text("untouched")
    doc("import", tmp_path / "table.txt", "--store", store)
    data = bytearray(store.read_bytes())
    data[data.index("漢".encode())] ^= 1
    store.write_bytes(data)
    (tmp_path / "home").mkdir()
    store = store.rename(tmp_path / "home" / "docs.sqlite")
    status = nngkit("doc", "status", "minutes", "table", "--store", str(store), "--json")
    assert status.returncode == 0
    told = valid(status.stdout, "doc-status.json")
    assert [one["document"] for one in told["store"]["documents"]] == ["table"]
    assert [one["document"] for one in told["store"]["damaged"]] == ["minutes"]
    assert [one["document"] for one in told["documents"]] == ["table"]
    for action in (("export", tmp_path / "out"), ("compact",)):
        done = nngkit("doc", *map(str, action), "--store", str(store))
        assert done.returncode == 1
        assert "table" in done.stdout
        assert "'minutes'" in done.stderr
        assert "nngkit doc recover" in done.stderr
    assert (tmp_path / "out" / "table.txt").read_text() == "untouched"
    with serving(tmp_path / "home") as (running, join):
        assert doc("cat", "table", "--join", join).stdout == "untouched"
        assert_fails(nngkit("doc", "cat", "minutes", "--join", join, "--timeout", "0.5"), 4, "minutes")
        running.end()
        assert "nngkit doc recover" in running.rest()[1]


# ---- files


@pytest.mark.slow
def test_an_export_can_be_imported(tmp_path: Path) -> None:
    content = {
        "body": TEXT,
        "title/..": "😀",
        "rows": [{"name": "Ada", "n": 1, "icon": {"$bytes": "AP8="}}, ["x", None, True, 1.5]],
        "meta": {"a.b": "c", "$object": {"$number": "NaN"}},
    }
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").mkdir()
    (tmp_path / "in" / "a" / "b.json").write_text(json.dumps(content))
    (tmp_path / "in" / "note.txt").write_text("hello")
    (tmp_path / "in" / "ignored.md").write_text("no")
    one, other = tmp_path / "one.sqlite", tmp_path / "other.sqlite"
    doc("import", tmp_path / "in", "--store", one)
    lines = doc("export", tmp_path / "out", "--store", one, "--json").stdout.splitlines()
    files = {os.path.relpath(valid(line, "doc.json")["file"], tmp_path / "out") for line in lines}
    assert files == {"a/b.json", "a/b.txt", "a/b.texts/title%2F...txt", "note.json", "note.txt"}
    assert (tmp_path / "out" / "a" / "b.txt").read_text() == TEXT
    assert json.loads((tmp_path / "out" / "a" / "b.json").read_text()) == content
    (tmp_path / "out" / "note.txt").write_text("hello there")  # a text is what people edit: it counts
    doc("import", tmp_path / "out", "--store", other)
    assert json.loads(doc("cat", "a/b", "--json", "--store", other).stdout) == content
    assert doc("cat", "note", "--store", other).stdout == "hello there"
    doc("import", tmp_path / "in" / "note.txt", "--as", "other/name", "--text", "aside", "--store", other)
    assert doc("cat", "other/name", "--text", "aside", "--store", other).stdout == "hello"


def test_an_export_of_one_document_leaves_other_files(store: Path, tmp_path: Path) -> None:
    doc("export", "minutes", tmp_path / "out", "--store", store)
    assert {each.name for each in (tmp_path / "out").iterdir()} == {"minutes.json", "minutes.txt"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.json", b"{", "not the JSON of a document"),
        ("a.json", b"[" * 100_000, "not the JSON of a document"),
        ("a.json", b"[]", "not an object"),
        ("a.json", b'{"a": 1}', "'a' is int"),
        ("a.json", b'{"a": [99999999999999999999]}', "integer outside of"),
        ("a.json", b'{"a": [{"$bytes": "?"}]}', "$bytes"),
        ("a.json", b'{"body": []}', None),
        ("minutes.json", b'{"body": ["x"]}', "'body' is a text in the document, and a list here"),
        ("a.json", b'{"a": ["\\ud800"]}', "a.json"),
        ("a.txt", b"\xff", "not UTF-8"),
        ("a.md", b"", "neither .txt nor .json"),
    ],
)
def test_an_invalid_file_is_a_one_line_error_and_changes_nothing(
    store: Path, tmp_path: Path, name: str, content: bytes, says: str | None
) -> None:
    (tmp_path / name).write_bytes(content)
    done = nngkit("doc", "import", str(tmp_path / name), "--store", str(store))
    if says is None:
        assert done.returncode == 0
    else:
        assert_fails(done, 2, says, str(tmp_path / name))
    assert doc("cat", "minutes", "--store", store).stdout == TEXT


def test_content_is_changed_by_parts() -> None:
    document = Document("a")
    document.array("rows").extend([Map({"n": 1, "note": Text("abc"), "keep": [1]}), Map({"n": 2}), 3])
    document.map("meta")["a"] = Map({"x": 1})
    first, inner = document.array("rows")[0], document.map("meta")["a"]
    note = first["note"]
    wanted = {"rows": [{"n": 5, "note": "abXc", "keep": [1]}, 3, {"new": [1]}], "meta": {"a": {"x": 1, "y": 2}}}
    check(wanted, document.plain())
    assert bring(document, wanted, document.plain())
    assert document.plain() == wanted
    assert (first["n"], str(note), inner["y"]) == (5, "abXc", 2)  # the same parts as before, changed
    assert isinstance(document.array("rows")[2]["new"], Array)
    assert not bring(document, wanted, document.plain())
    assert bring(document, {}, document.plain())
    assert document.plain() == {}


# ---- others


@pytest.mark.slow
def test_a_served_folder_is_open_to_peers_with_the_token(tmp_path: Path) -> None:
    (tmp_path / "minutes.txt").write_text(TEXT)
    with serving(tmp_path / "home") as (running, join):
        place, _, secret = join.partition("#token=")
        assert len(secret) >= 20
        doc("import", tmp_path / "minutes.txt", "--join", join)
        assert doc("cat", "minutes", "--join", place, NNGKIT_TOKEN=secret).stdout == TEXT
        assert doc("cat", "minutes", "--join", place, "--token", secret).stdout == TEXT
        assert_fails(nngkit("doc", "cat", "minutes", "--join", place), 1, "token is wrong or missing")
        assert_fails(
            nngkit("doc", "cat", "minutes", "--join", join, "--token", "x"), 2, "differs from --token or NNGKIT_TOKEN"
        )
        assert_fails(nngkit("doc", "cat", "nothing", "--join", join), 1, "no document 'nothing'")
        assert running.end() == 130
        assert secret not in running.rest()[1]
    assert doc("cat", "minutes", "--store", tmp_path / "home" / "docs.sqlite").stdout == TEXT


@pytest.mark.slow
def test_a_served_folder_keeps_its_documents(store: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    store.rename(tmp_path / "home" / "docs.sqlite")
    with serving(tmp_path / "home", "--only", "min*") as (_, join):
        out = doc("export", tmp_path / "out", "--join", join).stdout
        assert out.splitlines() == [str(tmp_path / "out" / name) for name in ("minutes.json", "minutes.txt")]
        failed = nngkit(
            "doc", "import", str(tmp_path / "minutes.txt"), "--as", "secret", "--join", join, "--timeout", "1"
        )
        assert_fails(failed, 4, "secret")


def test_no_peer_is_exit_code_4() -> None:
    done = nngkit("doc", "cat", "minutes", "--dial", "tcp://127.0.0.1:1", "--timeout", "0.2")
    assert_fails(done, 4, "0.2 s; no listener at 127.0.0.1:1: ")


@pytest.mark.slow
def test_changes_are_followed(home: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    with (
        Running("doc", "cat", "a", "--follow", "--join", home, "--json", "--listen", ANY) as lines,
        Running("doc", "cat", "a", "--follow", "--join", home) as text,
    ):
        assert valid(lines.line(), "doc-change.json")["content"] == {}
        doc("import", tmp_path / "a.txt", "--join", home)
        assert valid(lines.line(), "doc-change.json")["parts"] == []  # in a root that was not known
        assert valid(lines.line(), "doc-change.json")["content"] == {"body": "one"}
        (tmp_path / "a.txt").write_text("one 😀")
        doc("import", tmp_path / "a.txt", "--join", home, "--name", "Ada")
        change = valid(lines.line(), "doc-change.json")
        assert change["parts"] == [{"path": ["body"], "kind": "text", "delta": [{"keep": 3}, {"insert": " 😀"}]}]
        assert change["peer"] is not None
        (tmp_path / "b.json").write_text(json.dumps({"body": "one 😀", "rows": [{"n": 1}]}))
        doc("import", tmp_path / "b.json", "--as", "a", "--join", home)
        kinds = [valid(lines.line(), "doc-change.json") for _ in range(2)]
        assert [kind["event"] for kind in kinds] == ["change", "content"]
        assert kinds[1]["content"] == {"rows": [{"n": 1}]}
        assert lines.end() == 130
        while "@3" not in (line := text.line()):
            pass
        assert re.search(r'Z  \S+  body @3 \+" 😀"$', line)


@pytest.mark.slow
def test_status_shows_peers_documents_and_disks(home: str, store: Path, tmp_path: Path) -> None:
    doc("import", tmp_path / "minutes.txt", "--join", home)
    told = valid(doc("status", "minutes", "--join", home, "--json", "--store", store).stdout, "doc-status.json")
    [stored] = told["store"]["documents"]
    assert (stored["document"], stored["edits"]) == ("minutes", 1)
    [peer] = told["peers"]
    assert (peer["name"], peer["documents"], peer["relay"], peer["askable"]) == ("home", ["minutes"], True, True)
    [document] = told["documents"]
    assert document["roots"]["body"]["kind"] == "text"
    assert (document["synced"], document["disks"], document["peers"]) == (True, 1, [peer["stream"]])
    people = doc("status", "minutes", "--join", home).stdout
    assert re.search(r"(?m)^home +ws://.* ms +askable relay +minutes$", people)
    assert re.search(r"(?m)^minutes +body text \d+ +yes +1 +[0-9a-f]{8}", people)
    alone = doc("status", "--store", store).stdout
    assert re.search(r"(?m)^minutes +2 +2 +0 ", alone)  # what home has is in it now


BUILT = """
import sys
from pathlib import Path
import nngkit.web.doc as page
from nngkit.cli.main import main
from nngkit.errors import ConfigError

def folder():
    if sys.argv[1] == "-":
        raise ConfigError("document page", "is not built: run `python3 dev.py web` in a checkout")
    return Path(sys.argv[1])

page.page_folder = folder
sys.exit(main(sys.argv[2:]))
"""


@contextmanager
def serving_a_page(folder: Path, *more: str, built: bool = True) -> Iterator[tuple[str, IO[str]]]:
    """Run `doc serve`; yield the line that it prints, and its standard error."""
    (folder / "index.html").write_text("<html>the page</html>")
    command = [sys.executable, "-c", BUILT, str(folder) if built else "-", "doc", "serve", str(folder / "home")]
    with subprocess.Popen(
        [*command, *more], cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            yield process.stdout.readline(), process.stderr
        finally:
            process.kill()


def page_at(url: str, authority: str | None = None) -> tuple[bytes, dict[str, Any]]:
    """Return the page and its configuration."""
    context = None if authority is None else ssl.create_default_context(cadata=authority)
    with urllib.request.urlopen(url, timeout=WAIT, context=context) as answer:
        page = answer.read()
    with urllib.request.urlopen(f"{url}config.json", timeout=WAIT, context=context) as answer:
        return page, json.load(answer)


@pytest.mark.parametrize("built", [True, False])
def test_the_page_is_served_if_it_is_built(built: bool, tmp_path: Path) -> None:
    with serving_a_page(tmp_path, "--listen", ANY, "--http", "127.0.0.1:0", built=built) as (first, said):
        assert "token=" not in first
        if built:
            assert page_at(first.strip())[0] == b"<html>the page</html>"
            assert "join at ws://" in said.readline()
        else:  # peers are still served
            assert "python3 dev.py web" in said.readline()
            assert "--join 'ws://" in first


@pytest.mark.slow
@pytest.mark.parametrize("trust", [False, True])
@pytest.mark.parametrize("certificate", [False, True])
def test_the_page_is_served_by_https(trust: bool, certificate: bool, tmp_path: Path) -> None:
    farm, issued = OneRealm(tmp_path / "farm"), issue(tmp_path / "issued", "127.0.0.1")
    options = ["--https", "127.0.0.1:0", "--listen", "wss://127.0.0.1:0"]
    options += ["--cert", str(issued.cert), "--key", str(issued.key)] if certificate else []
    options += ["--trust", str(farm.file("hub", ("127.0.0.1",))), "--guests", "wss://127.0.0.1:0"] if trust else []
    if not trust and not certificate:
        assert_fails(nngkit("doc", "serve", str(tmp_path), *options), 2, "--https: needs --cert and --key, or a pass")
        return
    with serving_a_page(tmp_path, *options) as (first, said):
        page, config = page_at(first.strip(), issued.ca.read_text() if certificate else FARM.certificate)
        assert page == b"<html>the page</html>"
        assert (tmp_path / "home" / "docs.token").exists() is not trust
        joined = said.readline().split()[-1]
        assert [repair.startswith("wss://") for repair in (*config["repair"], joined)] == [True, True]
        assert (joined in config["repair"]) is not trust  # guests have an address of their own


@pytest.mark.slow
def test_a_token_that_serve_made_is_kept_for_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "home" / "docs.token"
    joins = []
    for _ in range(2):
        with serving(tmp_path / "home") as (running, join):
            joins.append(join.partition("#token=")[2])
            running.end()
        assert file.stat().st_mode & 0o777 == 0o600
        file.chmod(0o644)
    assert joins[0] == joins[1] == file.read_text().strip()
    with serving(tmp_path / "home", "--token", "given") as (running, join):
        assert_fails(nngkit("doc", "cat", "minutes", "--join", join), 1, "token is wrong or missing")
        assert_fails(nngkit("doc", "cat", "minutes", "--join", f"{join}#token=given"), 1, "no document")
        running.end()
    assert file.read_text().strip() == joins[0]


def test_serving_without_a_token_needs_an_option(tmp_path: Path) -> None:
    tcp = "tcp://127.0.0.1:0"
    assert_fails(nngkit("doc", "serve", str(tmp_path), "--listen", tcp), 2, "with a token it has to be on ws")
    assert_fails(nngkit("doc", "serve", str(tmp_path), "--no-token", NNGKIT_TOKEN="x"), 2, "--no-token")
    with Running("doc", "serve", str(tmp_path), "--listen", tcp, "--no-token", "--json") as running:
        told = valid(running.line(), "doc.json")
        assert told["page"] is None
        (tmp_path / "a.txt").write_text("open")
        doc("import", tmp_path / "a.txt", "--dial", told["addresses"][0])
        assert doc("cat", "a", "--join", told["join"][0]).stdout == "open"


# ---- wrong usage


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, "ACTION"),
        (["nothing"], 2, "invalid choice: 'nothing'"),
        (["cat"], 2, "required: NAME"),
        (["cat", "../x", "--store", "/dev/null"], 2, "document name: '../x'"),
        (["cat", "a", "--store", "/nonexistent/store"], 1, "no /nonexistent/store"),
        (["cat", "a", "--follow", "--at", "x"], 2, "--at"),
        (["edit", "a"], 2, "--store: the text would be lost"),
        (["import", "a.txt"], 2, "--store: the import would be lost"),
        (["import", "/nonexistent.txt", "--store", "x"], 2, "/nonexistent.txt: No such file"),
        (["export", "out"], 2, "--store"),
        (["log", "a"], 2, "required: --store"),
        (["status"], 2, "--store"),
        (["serve", "/dev/null"], 2, "DIR: /dev/null"),
        (["serve", ".", "--http", "x"], 2, "argument --http: 'x' is not [HOST:]PORT"),
        (["serve", ".", "--https", "h:1", "--http", "h:1"], 2, "--http: conflicts with --https"),
        (["cat", "a", "--dial", "here"], 2, "argument --dial: 'here' is not an address"),
        (["cat", "a", "--cert", "x", "--dial", "tcp://127.0.0.1:1"], 2, "--cert: is for tls+tcp:// and wss://"),
    ],
)
def test_wrong_usage_is_a_one_line_error(arguments: list[str], code: int, says: str) -> None:
    assert_fails(nngkit("doc", *arguments), code, says)


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    script = (
        "import sys; sys.modules['pycrdt'] = None; from nngkit.cli.main import main; "
        f"sys.exit(main(['doc', 'edit', 'a', '--editor', '--store', {str(tmp_path / 'store')!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=WAIT
    )
    assert_fails(done, 2, "pip install 'nngkit[documents]'")


def test_the_help_of_an_action_loads_nothing() -> None:
    script = "import sys; from nngkit.cli.main import main; main(['doc', 'edit', '--help']); print(sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=WAIT)
    assert "--editor" in done.stdout
    for heavy in ("trio", "asyncio", "pynng", "pycrdt", "curses", "sqlite3"):
        assert f"'{heavy}'" not in done.stdout
