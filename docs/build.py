"""Prepare the sources of the documentation site, and check the built site.

::

    python3 docs/build.py             copy docs/ to build/docs, with the links out of docs/ made absolute
    python3 docs/build.py --check     check that the site in build/site has an entry for every public name

`python3 dev.py docs` runs the first, then `zensical build --strict`, then the second.

A link such as `../examples/pair.py` works in a checkout and on GitHub. The site has no such page, so there it leads to
the file on GitHub. Exit codes: 0, or 1 if a link leads nowhere or a name has no entry; each is printed.
"""

from __future__ import annotations

import ast
import re
import shutil
import sys
import tomllib
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
OUT = ROOT / "build" / "docs"
INVENTORY = ROOT / "build" / "site" / "objects.inv"
SHOWN = {".md", ".svg", ".png", ".css"}  # shown by the site; everything else in docs/ stays on GitHub
LINK = re.compile(r"(\]\()(?!https?:|#)([^)#\s]+)((?:#[^)]*)?\))")


def source() -> str:
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
    return str(urls["Source"])


def absolute(page: Path, text: str) -> tuple[str, list[str]]:
    """Return the text of a page with its links out of docs/ made absolute, and the links that lead nowhere."""
    broken: list[str] = []

    def link(match: re.Match[str]) -> str:
        target = (page.parent / match[2]).resolve()
        if not target.exists():
            broken.append(f"{page.relative_to(ROOT)}: a link leads nowhere: {match[2]}")
            return match[0]
        if target.is_relative_to(DOCS) and target.suffix in SHOWN:
            return match[0]
        kind = "tree" if target.is_dir() else "blob"
        return f"{match[1]}{source()}/{kind}/main/{target.relative_to(ROOT)}{match[3]}"

    return LINK.sub(link, text), broken


def prepare(out: Path = OUT) -> list[str]:
    """Write the sources of the site into `out`. Return what is wrong, a line each."""
    shutil.rmtree(out, ignore_errors=True)
    wrong: list[str] = []
    for path in sorted(path for path in DOCS.rglob("*") if path.suffix in SHOWN):
        copy = out / path.relative_to(DOCS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix != ".md":
            shutil.copy(path, copy)
            continue
        text, broken = absolute(path, path.read_text())
        copy.write_text(text)
        wrong += broken
    return wrong


def documented() -> dict[str, str]:
    """Return the pages of the reference, except the index, by the module that each documents, its title."""
    texts = [page.read_text() for page in sorted(DOCS.glob("reference/[!i]*.md"))]
    return {text.split()[1]: text for text in texts}


def public_names(module: str) -> list[str]:
    """Return the `__all__` of a module without importing it: its extra may not be installed."""
    path = ROOT / module.replace(".", "/")
    tree = ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text())
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(each, ast.Name) and each.id == "__all__" for each in node.targets
        ):
            return [str(name) for name in ast.literal_eval(node.value)]
    raise SystemExit(f"docs/build.py: {module} has no __all__")


def check() -> list[str]:
    """Return the public names that the built site has no entry for, a line each."""
    body = INVENTORY.read_bytes().split(b"\n", 4)[4]
    entries = {line.split(" ", 1)[0] for line in zlib.decompress(body).decode().splitlines()}
    wrong = []
    for module, text in documented().items():
        for name in public_names(module):
            path = f"{module}.{name}"  # or, where a function has the name of its module, the last part twice
            if not {path, f"{path}.{name}"} & entries and f"`{name}`" not in text:
                wrong.append(f"no reference entry for {path}")
    return wrong


if __name__ == "__main__":
    wrong = check() if sys.argv[1:] == ["--check"] else prepare()
    for line in wrong:
        print(f"docs/build.py: {line}", file=sys.stderr)
    sys.exit(bool(wrong))
