"""What is shipped is what is in the tree: the wheel's modules, the symlink, the lock."""

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

import pytest
from packaging.requirements import Requirement

from nngkit.spark.cluster import needed
from tests.web.pages import built_page

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PAGE = ("nngkit/web/static/doc/index.html", "nngkit/web/static/doc/page.js")
LOCKS = {name: (ROOT / name).read_text() for name in ("requirements.lock", "requirements-spark.lock")}
SPARK_ONLY = ("spark", "java")  # the extras of the second lock


def checked_in() -> list[str]:
    """The files of a clone: tracked ones, and new ones that nothing ignores."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True, timeout=30).stdout
    return [name for name in names.split("\0") if name and os.path.lexists(ROOT / name)]


def built(folder: Path, page: Callable[[Path], object]) -> tuple[Path, Path]:
    """The wheel, and the sdist that it was built from, of a clone with a page: no leftovers of earlier builds."""
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
    """A wheel as if `python3 dev.py web` had built the page."""

    def page(clone: Path) -> None:
        for name in PAGE:
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            (clone / name).write_text(name)

    return built(tmp_path_factory.mktemp("wheel"), page)[0]


@pytest.mark.needs_program("git")
def test_the_wheel_holds_every_module_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    shipped = {name for name in names if ".dist-info/" not in name}
    modules = {name for name in checked_in() if name.startswith(("nngkit/", "protocols/")) and name.endswith(".py")}
    modules |= set(PAGE)
    expected = {re.sub("^protocols/", "nngkit/protocols/", name) for name in modules}
    assert shipped == expected | {"nngkit/py.typed"}


@pytest.mark.needs_program("git")
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
    """A virtual environment with that wheel in it, what it says that it needs, and nothing else."""
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


def host_pip() -> list[str]:
    """The pip that dev.py takes: .venv has none."""
    sys.path.insert(0, str(ROOT))
    try:
        dev = importlib.import_module("dev")
    finally:
        sys.path.remove(str(ROOT))
    found: list[str] = dev.host_pip()
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


def test_the_classifiers_are_real_ones_and_have_the_least_python() -> None:
    project = PROJECT["project"]
    assert (
        f"Programming Language :: Python :: {project['requires-python'].removeprefix('>=')}" in project["classifiers"]
    )
    assert {"Source", "Documentation", "Changelog", "Issues"} <= project["urls"].keys()


def test_the_static_tools_find_the_bricks_through_a_symlink() -> None:
    link = ROOT / "nngkit" / "protocols"
    assert link.is_symlink()
    assert os.readlink(link) == "../protocols"


def test_nothing_of_the_page_that_is_built_or_fetched_is_checked_in() -> None:
    assert [name for name in checked_in() if name.startswith("nngkit/web/static/") or "node_modules" in name] == []


def test_the_lock_of_the_page_names_no_registry_and_pins_by_hash() -> None:
    packages = json.loads((ROOT / "nngkit/web/doc/package-lock.json").read_text())["packages"]
    own = json.loads((ROOT / "nngkit/web/doc/package.json").read_text())
    asked = own["dependencies"] | own["devDependencies"]
    assert {name: packages[f"node_modules/{name}"]["version"] for name in asked} == asked
    for name, entry in packages.items():
        assert "resolved" not in entry, f"{name} binds everybody to one registry"
        assert name == "" or entry["integrity"].startswith("sha512-")


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_host_and_no_index(lock: str) -> None:
    assert "://" not in LOCKS[lock]
    options = [line for line in LOCKS[lock].splitlines() if line.startswith("-")]
    assert options == [], "an option in the lock binds everybody to one registry"


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_holds_a_hash_for_every_pin(lock: str) -> None:
    entries = re.split(r"\n(?=\S)", LOCKS[lock])  # what is indented belongs to the line above
    pins = [entry for entry in entries if not entry.startswith("#")]
    assert pins
    assert [entry for entry in pins if not re.match(r"\S+==.+ --hash=sha256:[0-9a-f]{64}", entry, re.DOTALL)] == []


def pins(lock: str) -> dict[str, set[str]]:
    """What a lock pins; more than one version of a package where it differs from Python to Python."""
    found: dict[str, set[str]] = {}
    for name, version in re.findall(r"^([a-z0-9.-]+)==([^\s;]+)", LOCKS[lock], re.MULTILINE):
        found.setdefault(name, set()).add(version)
    return found


def test_the_locks_pin_what_the_project_asks_for() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    common = [PROJECT["project"]["dependencies"], PROJECT["build-system"]["requires"]]
    common += [extras[name] for name in extras if name not in SPARK_ONLY]
    common += PROJECT["dependency-groups"].values()
    for lock, groups in (
        ("requirements.lock", common),
        ("requirements-spark.lock", [extras[name] for name in SPARK_ONLY]),
    ):
        pinned = pins(lock)
        for wanted in (Requirement(line) for group in groups for line in group):
            assert wanted.name in pinned, f"{wanted.name} is not in {lock}"
            for pin in pinned[wanted.name]:
                assert wanted.specifier.contains(pin, prereleases=True), f"{wanted}, and {lock} has {pin}"


def test_the_locks_agree() -> None:
    one, other = (pins(lock) for lock in LOCKS)
    assert one.keys() & other.keys()
    assert {name: (one[name], other[name]) for name in one.keys() & other.keys() if one[name] != other[name]} == {}
