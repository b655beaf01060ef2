"""The pages of docs/ are true: their programs run, their links and the names in their tables exist."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import nngkit
from nngkit import calls, cluster, devices, discovery, documents, fanout, journal, protocols, recording
from nngkit.protocols import sp

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = {
    str(path.relative_to(ROOT)): path.read_text()
    for path in [*map(ROOT.joinpath, ("README.md", "CONTRIBUTING.md")), *sorted(DOCS.rglob("*.md"))]
}
SNIPPETS = {path.stem: path for path in sorted((DOCS / "snippets").glob("*.py"))}
COMMANDS = importlib.import_module("nngkit.cli.main").COMMANDS
PACKAGES = (nngkit, protocols, calls, cluster, discovery, documents, devices, fanout, journal, recording, sp)
MIGRATIONS = ("from-articles", "from-nats", "from-pynng", "from-pyzmq", "upgrading")
# The modules of nngkit that have no page in the reference: nothing in them is for users.
INTERNAL = {
    *("background", "cbor", "chance", "cli", "envelope", "histogram", "hosted", "lazy", "loop_waits", "loops"),
    *(
        "file_modes",
        "headers",
        "instruments",
        "log_lines",
        "messages",
        "portal",
        "redial",
        "release",
        "silence",
        "tracing",
    ),
    *("tracing", "web"),
    "mesh",  # its names are those of nngkit.fanout
}


def run(program: str, folder: Path) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=folder)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


# ---- programs --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", SNIPPETS)
def test_a_snippet_prints_the_comments_beside_its_prints(name: str, tmp_path: Path) -> None:
    text = SNIPPETS[name].read_text()
    promised = re.findall(r"^ *print\(.*\)  # (.*)$", text, re.MULTILINE)
    assert promised
    assert run(text, tmp_path).splitlines() == promised


def test_pages_include_snippets_that_exist_and_every_snippet_is_included() -> None:
    included = set()
    for page, text in PAGES.items():
        for before, name, section in re.findall(r"(.*\n.*)docs/snippets/(\w+)\.py(?::(\w+))?", text):
            assert before.split() == ["--8<--"], f"{page}: {name} is not included, which takes three lines"
            included.add(name)
            assert name in SNIPPETS, page
            assert f"[start:{section}]" in SNIPPETS[name].read_text() or not section, page
    assert included == set(SNIPPETS)


def programs(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "program", "output"),
    [
        pytest.param(page, *found, id=page)
        for page, text in PAGES.items()
        for found in re.findall(r"```python\n((?:(?!```).)*?)```\n\nIt prints `(.*?)`", text, re.DOTALL)
    ],
)
def test_a_program_prints_the_output_on_the_page(page: str, program: str, output: str, tmp_path: Path) -> None:
    assert run(program, tmp_path) == output + "\n"


@pytest.mark.parametrize("page", [page for page, text in PAGES.items() if programs(text)])
def test_the_python_of_a_page_compiles_and_its_imports_exist(page: str) -> None:
    for program in programs(PAGES[page]):
        if program.startswith("--8<--"):
            continue
        tree = compile(program, page, "exec", ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nngkit"):
                module = importlib.import_module(node.module or "")
                for alias in node.names:
                    assert hasattr(module, alias.name), f"{page}: {node.module} has no {alias.name}"


# ---- names -----------------------------------------------------------------------------------------------------------


def attribute(owner: Any, name: str) -> Any:
    if isinstance(owner, type) and any(name in getattr(cls, "__annotations__", {}) for cls in owner.__mro__):
        return None  # an attribute of instances
    return getattr(owner, name)


def find(dotted: str) -> Any:
    """Return the object that a table names, such as `Pub.send` or `read`. Raises LookupError."""
    first, *rest = dotted.split(".")
    for package in PACKAGES:
        if hasattr(package, first):
            found = getattr(package, first)
            for name in rest:
                found = attribute(found, name)
            return found
    raise LookupError(dotted)


@pytest.mark.parametrize("page", MIGRATIONS)
def test_the_names_in_the_tables_of_a_migration_page_exist(page: str) -> None:
    rows = re.findall(r"^\|(.*)\|$", PAGES[f"docs/{page}.md"], re.MULTILINE)
    checked = 0
    for row in rows:
        for name, arguments in re.findall(
            r"`([A-Z]\w+(?:\.\w+)*|read|replay|encode_request)(?:\((.*?)\))?`", cell(row)
        ):
            found = find(name)
            options = re.findall(r"(\w+)=", arguments)
            assert not options or set(options) <= set(inspect.signature(found).parameters), f"{page}: {name}"
            checked += 1
        for command in re.findall(r"`nngkit (\w+)`", cell(row)):
            assert command in COMMANDS, f"{page}: nngkit {command}"
    assert checked > 10


def test_the_new_modules_and_names_of_upgrading_exist() -> None:
    rows = re.findall(r"^\|(.*)\|$", PAGES["docs/upgrading.md"], re.MULTILINE)
    found = [name for row in rows for name in re.findall(r"`(nngkit(?:\.\w+)+)`", cell(row))]
    assert len(found) > 30
    for name in found:
        pkgutil.resolve_name(name)


def cell(row: str) -> str:
    """Return the second cell of a row: the name on our side."""
    return row.split("|")[1]


# ---- the site --------------------------------------------------------------------------------------------------------


def modules() -> set[str]:
    names = {path.stem for path in (ROOT / "nngkit").glob("[!_]*.py")}
    return names | {path.parent.name for path in (ROOT / "nngkit").glob("*/__init__.py")}


def test_every_public_package_has_a_page_in_the_reference() -> None:
    titles = {PAGES[page].split()[1] for page in PAGES if page.startswith("docs/reference/")}
    missing = {f"nngkit.{name}" for name in modules() - INTERNAL} - titles
    assert not missing, "add a page to docs/reference, a line to its index.md and one to the nav of mkdocs.yml"


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/reference/") and "index" not in page])
def test_a_page_of_the_reference_documents_its_title_and_its_index_lists_it(page: str) -> None:
    title = PAGES[page].split()[1]
    assert f"\n::: {title}\n" in PAGES[page]
    assert f"| [{title}]({Path(page).name}) |" in PAGES["docs/reference/index.md"]


@pytest.mark.parametrize(
    "module", sorted({PAGES[page].split()[1] for page in PAGES if page.startswith("docs/reference/")} - {"Reference"})
)
def test_every_public_class_and_function_has_a_docstring(module: str) -> None:
    imported: ModuleType = importlib.import_module(module)
    for name in imported.__all__:
        found = getattr(imported, name)
        if inspect.isclass(found) or inspect.isfunction(found):
            assert (found.__doc__ or "").strip(), f"{module}.{name} has no docstring"


def test_the_navigation_lists_every_page() -> None:
    listed = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(page.removeprefix("docs/") for page in PAGES if page.startswith("docs/"))


def test_links_lead_to_files_that_exist() -> None:
    for page, text in PAGES.items():
        for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", text):
            assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"


def test_tests_and_benchmarks_that_a_page_refers_to_exist() -> None:
    for page, text in PAGES.items():
        for name in re.findall(r"\btests/[\w/]+\.\w+", text):
            assert (ROOT / name).exists(), f"{page} refers to {name}"
        for name in re.findall(r"dev\.py bench ([a-z]\w+)", text):
            assert (ROOT / "benchmarks" / f"{name}.py").exists(), f"{page} refers to the benchmark {name}"


def test_the_glossary_has_at_most_40_terms_in_order() -> None:
    terms = re.findall(r"^\| ([\w -]+) \|", PAGES["docs/glossary.md"], re.MULTILINE)[1:]
    assert len(terms) <= 40
    assert terms == sorted(set(terms))
