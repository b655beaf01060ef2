"""Wheel and sdist contain the modules of the tree and the browser page; the locks pin what pyproject.toml asks for."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from nngkit.spark.cluster import needed
from tests.web.pages import built_page

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PAGE = ("nngkit/web/static/doc/index.html", "nngkit/web/static/doc/page.js")
LOCKS = {path.stem: path.read_text() for path in sorted((ROOT / "requirements").glob("*.lock"))}


def checked_in() -> list[str]:
    """Return the files of a clone: those that git tracks, and new ones that it does not ignore."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True, timeout=30).stdout
    return [name for name in names.split("\0") if name and os.path.lexists(ROOT / name)]


def built(folder: Path, page: Callable[[Path], object]) -> tuple[Path, Path]:
    """Build a clone with a page; return the wheel and its sdist. A clone has no files left from earlier builds."""
    clone, out = folder / "clone", folder / "dist"
    for name in checked_in():
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, clone / name, follow_symlinks=False)
    page(clone)
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(clone)]
    done = subprocess.run(build, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel built with stand-ins for the files of `python3 dev.py web`."""

    def page(clone: Path) -> None:
        for name in PAGE:
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            (clone / name).write_text(name)

    return built(tmp_path_factory.mktemp("wheel"), page)[0]


@pytest.mark.slow
@pytest.mark.needs_program("git")
def test_the_wheel_holds_every_module_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {name for name in names if ".dist-info/" not in name}
    files = checked_in()
    modules = {name for name in files if name.startswith(("nngkit/", "protocols/")) and name.endswith(".py")}
    modules |= {name for name in files if name.startswith("nngkit/web/status/page/")} | set(PAGE)
    modules |= {f"nngkit/schemas/{Path(name).name}" for name in files if name.startswith("docs/schemas/")}
    expected = {re.sub("^protocols/", "nngkit/protocols/", name) for name in modules}
    assert shipped == expected | {"nngkit/py.typed"}


@pytest.mark.needs_program("git")
@pytest.mark.slow
def test_the_wheel_imports_on_its_own(wheel: Path) -> None:
    script = f"import sys; sys.path.insert(0, {str(wheel)!r}); import nngkit, nngkit.protocols as p; print(p.__file__)"
    done = subprocess.run([sys.executable, "-c", script], cwd="/", capture_output=True, text=True, timeout=30)
    assert done.stdout.startswith(str(wheel)), done.stderr


GET = """
import sys, urllib.request
with urllib.request.urlopen(sys.argv[1], timeout=10) as answer:
    sys.stdout.write(answer.read().decode())
"""


def clean(folder: Path, wheel: Path) -> Path:
    """Make a virtual environment with the wheel, the dependencies it declares, and nothing else."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=50)
    home = str(folder)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": home, "platbase": home}))
    for name in needed(["nngkit"], ["documents"]):
        if name != "nngkit":  # from where they are installed: a test asks no package index
            for top in {Path(str(file)).parts[0] for file in metadata.files(name) or ()} - {"..", "__pycache__"}:
                if not (packages / top).exists():
                    (packages / top).symlink_to(Path(str(metadata.distribution(name).locate_file(top))))
    pip = [*host_pip(), "--python", str(folder / "bin" / "python"), "install", "--no-index", "--no-deps"]
    done = subprocess.run([*pip, str(wheel)], capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def dev() -> Any:
    """Return dev.py as a module."""
    sys.path.insert(0, str(ROOT))
    try:
        return importlib.import_module("dev")
    finally:
        sys.path.remove(str(ROOT))


def host_pip() -> list[str]:
    """Return the pip that dev.py uses; .venv has none."""
    found: list[str] = dev().host_pip()
    return found


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.needs_program("git")
@pytest.mark.needs_program("npm")
def test_the_wheel_in_a_clean_environment_opens_the_page(tmp_path: Path) -> None:
    page = built_page()

    def copied(clone: Path) -> None:
        shutil.copytree(page, clone / "nngkit/web/static/doc")

    wheel, sdist = built(tmp_path, copied)
    folder = clean(tmp_path / "clean", wheel)
    with tarfile.open(sdist) as archive:
        carried = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"nngkit/web/static/doc/{file.name}" for file in page.iterdir()} <= carried
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "NNGKIT_TOKEN")}

    def run(*argv: str | Path) -> str:
        done = subprocess.run(argv, cwd="/", env=environment, capture_output=True, text=True, timeout=30)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    nngkit = folder / "bin" / "nngkit"
    assert run(nngkit, "--help").startswith("usage: nngkit COMMAND")
    assert Path(run(folder / "bin" / "python", "-c", "import nngkit; print(nngkit.__file__)")).is_relative_to(folder)
    serve: list[str | Path] = [
        nngkit,
        "doc",
        "serve",
        tmp_path / "notes",
        "--listen",
        "ws://127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
    ]
    with subprocess.Popen(serve, cwd="/", env=environment, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            link = process.stdout.readline().strip()
            assert run(folder / "bin" / "python", "-c", GET, link) == (page / "index.html").read_text()
        finally:
            process.kill()


def test_the_classifiers_name_the_oldest_supported_python() -> None:
    project = PROJECT["project"]
    assert (
        f"Programming Language :: Python :: {project['requires-python'].removeprefix('>=')}" in project["classifiers"]
    )
    assert {"Source", "Documentation", "Changelog", "Issues"} <= project["urls"].keys()


def test_the_static_tools_find_the_bricks_through_a_symlink() -> None:
    link = ROOT / "nngkit" / "protocols"
    assert link.is_symlink()
    assert os.readlink(link) == "../protocols"


def test_no_built_or_downloaded_file_of_the_page_is_checked_in() -> None:
    assert [name for name in checked_in() if name.startswith("nngkit/web/static/") or "node_modules" in name] == []


@pytest.mark.parametrize("folder", ["nngkit/web/doc", "tests/web/durable_streams"])
def test_a_lock_of_npm_names_no_registry_and_pins_by_hash(folder: str) -> None:
    packages = json.loads((ROOT / folder / "package-lock.json").read_text())["packages"]
    own = json.loads((ROOT / folder / "package.json").read_text())
    asked = own.get("dependencies", {}) | own["devDependencies"]
    assert {name: packages[f"node_modules/{name}"]["version"] for name in asked} == asked
    for name, entry in packages.items():
        assert "resolved" not in entry, f"{name} requires one particular registry"
        assert name == "" or entry["integrity"].startswith("sha512-")


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_host_and_no_index(lock: str) -> None:
    assert "://" not in LOCKS[lock]
    options = [line for line in LOCKS[lock].splitlines() if line.startswith("-")]
    assert options == [], "an option in the lock requires one particular registry"


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_a_hash_for_every_pin(lock: str) -> None:
    entries = re.split(r"\n(?=\S)", LOCKS[lock])  # indented lines belong to the line above
    pins = [entry for entry in entries if not entry.startswith("#")]
    assert pins
    assert [entry for entry in pins if not re.match(r"\S+==.+ --hash=sha256:[0-9a-f]{64}", entry, re.DOTALL)] == []


def pins(lock: str) -> dict[str, set[str]]:
    """Return the versions that a lock pins, by package; several where they depend on the Python version."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([a-z0-9.-]+)==([^\s;]+)", LOCKS[lock], re.MULTILINE):
        found.setdefault(name, set()).add(version)
    return found


def wanted() -> dict[str, list[Requirement]]:
    """Return the requirements that each lock has to satisfy, as dev.py makes them."""
    project, groups = PROJECT["project"], PROJECT["dependency-groups"]
    extras = project["optional-dependencies"]
    found = {}
    for lock, arguments in dev().LOCKED:
        lines = list(project["dependencies"]) if "pyproject.toml" in arguments else []
        for kind, name in re.findall(r"--(extra|group) (\w+)", arguments):
            lines += extras[name] if kind == "extra" else groups[name]
        found[lock] = [Requirement(line) for line in lines]
    return found


def test_every_extra_and_group_has_a_lock() -> None:
    locked = {name for _, arguments in dev().LOCKED for name in re.findall(r"--(?:extra|group) (\w+)", arguments)}
    assert locked == {*PROJECT["project"]["optional-dependencies"], *PROJECT["dependency-groups"]} - {"dev"}
    assert sorted(LOCKS) == sorted(name for name, _ in dev().LOCKED)


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_pins_the_requirements_of_the_project(lock: str) -> None:
    pinned = pins(lock)
    for requirement in wanted()[lock]:
        assert requirement.name in pinned, f"{requirement.name} is not in {lock}"
        for pin in pinned[requirement.name]:
            assert requirement.specifier.contains(pin, prereleases=True), f"{requirement}, and {lock} has {pin}"


def test_what_builds_the_project_is_pinned_by_the_first_lock() -> None:
    for requirement in map(Requirement, PROJECT["build-system"]["requires"]):
        assert all(requirement.specifier.contains(pin) for pin in pins("run")[requirement.name])


def test_the_locks_agree() -> None:
    """All locks are installed into one .venv."""
    versions: dict[str, set[frozenset[str]]] = {}
    for lock in LOCKS:
        for name, found in pins(lock).items():
            versions.setdefault(name, set()).add(frozenset(found))
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}
