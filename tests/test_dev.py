"""dev.py with a stand-in for .venv: the programs it runs, their arguments and its exit codes.

These tests download and install nothing; a test run through dev.py has just built the real .venv.
"""

import os
import resource
import shutil
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STAND_IN = '#!/bin/sh\necho "$@"\nexit ${STAND_IN_EXIT:-0}\n'
WHEEL = """
import pathlib, sys, zipfile
if len(sys.argv) > 2 and "build_editable" in sys.argv[2]:
    with zipfile.ZipFile(pathlib.Path(sys.argv[3], "nngkit-1.0-py3-none-any.whl"), "w") as wheel:
        text = "[console_scripts]\\nnngkit = nngkit.cli.main:main\\n"
        wheel.writestr("nngkit-1.0.dist-info/entry_points.txt", text)
"""
STAMP = """
import dev, hashlib
for part in dev.PARTS:
    (dev.VENV / (part.name + ".stamp")).write_text(hashlib.sha256(part.depends()).hexdigest())
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with a .venv that is complete by its stamps; its tools print their arguments."""
    for name in ("dev.py", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(ROOT / "requirements", tmp_path / "requirements")
    for script in (
        "examples/demo.py",
        "benchmarks/alpha.py",
        "benchmarks/beta.py",
        "benchmarks/_common.py",
        "docs/build.py",
    ):
        (tmp_path / script).parent.mkdir(exist_ok=True)
        (tmp_path / script).touch()
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    for tool in ("python", "ruff", "mypy", "lint-imports", "codespell", "zensical"):
        (tools / tool).write_text(STAND_IN)
        (tools / tool).chmod(0o755)
    subprocess.run([sys.executable, "-c", STAMP], cwd=tmp_path, check=True, timeout=30)
    return tmp_path


def dev(checkout: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(checkout / "dev.py"), *arguments]
    environment = {"PATH": "/usr/bin:/bin"} | environment
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, timeout=30)


def without_pip(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run dev.py where `python -m pip` finds a module that fails, and PATH has no pip: a part cannot be installed."""
    (checkout / "pip.py").write_text("raise SystemExit(1)")
    return dev(checkout, *arguments, PYTHONPATH=str(checkout), PATH="/nowhere")


def test_arguments_and_the_exit_code_pass_through(checkout: Path) -> None:
    done = dev(checkout, "test", "-k", "some name", STAND_IN_EXIT="5")
    assert (done.stdout, done.returncode) == ("-m pytest -k some name\n", 5)
    done = dev(checkout, "test", "--slow")
    workers = (3 * (os.cpu_count() or 1) + 1) // 2
    assert done.stdout.splitlines() == [
        f"-m pytest -n {workers} --durations=30 --alone=not --slow",
        "-m pytest --durations=30 --alone=only --slow",
    ]
    done = dev(checkout, "demo", "--fast", STAND_IN_EXIT="1")
    assert (done.stdout, done.returncode) == (f"{checkout}/examples/demo.py --fast\n", 1)


def test_programs_keep_byte_code(checkout: Path) -> None:
    (checkout / ".venv" / "bin" / "python").write_text('#!/bin/sh\necho "${PYTHONDONTWRITEBYTECODE-unset}"\n')
    assert dev(checkout, "test", PYTHONDONTWRITEBYTECODE="1").stdout == "unset\n"


def test_lint_runs_every_linter_even_if_all_fail(checkout: Path) -> None:
    done = dev(checkout, "lint", STAND_IN_EXIT="4")
    assert done.stdout.splitlines()[:2] == ["check .", "format --check ."]
    linters = "ruff check, ruff format, mypy --strict, import-linter, codespell, faces, docs/wire.md"
    assert f"failed: {linters}" in done.stderr
    assert done.returncode == 4


@pytest.mark.slow
def test_docs_prepares_builds_and_checks_the_site(checkout: Path) -> None:
    done = dev(checkout, "docs")
    script = f"{checkout}/docs/build.py"
    assert done.stdout.splitlines() == [script, "build --strict --clean", f"{script} --check"]
    assert done.returncode == 0
    assert dev(checkout, "docs", STAND_IN_EXIT="3").returncode == 3


@pytest.mark.slow
def test_lock_compiles_each_lock_with_the_versions_of_those_before(checkout: Path) -> None:
    tools = checkout.parent / (checkout.name + "-tools")
    tools.mkdir()
    (tools / "uv").write_text(STAND_IN)
    (tools / "uv").chmod(0o755)
    done = dev(checkout, "lock", "--upgrade", PATH=f"{tools}:/usr/bin:/bin")
    lines = done.stdout.splitlines()
    assert all(line.startswith("pip compile --quiet --universal ") and " --upgrade " in line for line in lines)
    names = [line.rpartition("--output-file requirements/")[2].removesuffix(".lock") for line in lines]
    assert names == ["run", "extras", "test", "lint", "docs", "bench", "wheel", "audit"]
    assert lines[-1].count("--constraint requirements/") == len(lines) - 1
    assert dev(checkout, "lock", PATH="/nowhere").returncode == 2


@pytest.mark.slow
def test_extras_runs_the_smoke_test_of_each_or_of_those_named(checkout: Path) -> None:
    script = f"{checkout}/tests/alone/run.py"
    assert dev(checkout, "extras", "journal").stdout == f"{script} journal\n"
    done = dev(checkout, "extras", STAND_IN_EXIT="1")
    project = tomllib.loads((checkout / "pyproject.toml").read_text())["project"]
    assert {line.removeprefix(f"{script} ") for line in done.stdout.splitlines()} == {
        "base",
        *project["optional-dependencies"],
    }
    assert done.returncode == 1


@pytest.mark.slow
def test_bench_runs_all_in_order_or_those_named(checkout: Path) -> None:
    assert dev(checkout, "bench", "--list").stdout == "alpha\nbeta\n"
    assert dev(checkout, "bench").stdout == f"{checkout}/benchmarks/alpha.py\n{checkout}/benchmarks/beta.py\n"
    assert dev(checkout, "bench", "beta", "--quick").stdout == f"{checkout}/benchmarks/beta.py --quick\n"
    assert dev(checkout, "bench", "beta", "--rounds", "5").stdout == f"{checkout}/benchmarks/beta.py --rounds 5\n"


@pytest.mark.parametrize("arguments", ["", "nonsense", "lint x", "docs x", "bench gamma", "extras x"])
def test_wrong_usage_is_one_line_and_exit_code_2(checkout: Path, arguments: str) -> None:
    done = dev(checkout, *arguments.split())
    assert done.returncode == 2
    assert done.stderr.startswith("dev.py: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_second_run_starts_in_under_a_second(checkout: Path) -> None:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    dev(checkout, "test")
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    # On a busy machine, CPU time: it does not count the time that other processes took.
    assert min(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) < 1.0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("requirements/run.lock", "makes .venv"),
        ("requirements/docs.lock", "makes .venv"),  # any lock: a package that leaves it has to leave .venv
    ],
)
def test_a_changed_lock_is_installed_again_which_needs_a_pip(checkout: Path, changed: str, message: str) -> None:
    with open(checkout / changed, "a") as file:
        file.write("# changed\n")
    done = without_pip(checkout, "test")
    assert done.returncode == 3
    assert message in done.stderr
    assert done.stderr.splitlines()[-1].startswith("dev.py: pip 22.3 or newer is needed, and there is none for ")
    assert (checkout / ".venv" / "bin" / "python").exists(), "removed before it can be made again"


@pytest.mark.slow
def test_a_changed_pyproject_installs_the_checkout_again(checkout: Path) -> None:
    packages = checkout / ".venv" / "lib" / "python3.11" / "site-packages"
    (packages / "nngkit-0.0.dist-info").mkdir(parents=True)
    # The stand-in for setuptools writes a wheel into the folder that it gets as the last argument.
    script = f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(checkout)!r})\nimport stand_in\n"
    (checkout / ".venv" / "bin" / "python").write_text(script)
    (checkout / "stand_in.py").write_text(WHEEL)
    with open(checkout / "pyproject.toml", "a") as file:
        file.write("# changed\n")
    assert "installs this checkout" in dev(checkout, "test").stderr
    assert [path.name for path in packages.glob("nngkit-*")] == ["nngkit-1.0.dist-info"]
    command = checkout / ".venv" / "bin" / "nngkit"
    assert command.read_text().endswith("from nngkit.cli.main import main\n\nsys.exit(main())\n")
    assert command.stat().st_mode & 0o111
    assert "installs this checkout" not in dev(checkout, "test").stderr


def test_a_checkout_that_cannot_be_built_is_an_error_with_the_output(checkout: Path) -> None:
    with open(checkout / "pyproject.toml", "a") as file:
        file.write("# changed\n")
    done = dev(checkout, "test", STAND_IN_EXIT="1")
    assert done.returncode == 3
    assert "build_editable" in done.stderr
    assert done.stderr.splitlines()[-1] == "dev.py: nngkit could not be built; the output above says why"


NEEDS = {  # command: the locks that it installs
    "demo --quick": ("run",),
    "demo": ("run", "extras"),
    "lint": ("run", "extras", "test", "lint"),
    "test": ("run", "extras", "test", "lint", "bench", "wheel"),
    "docs": ("docs",),
    "bench": ("run", "extras", "test", "bench"),
    "extras base": ("run", "extras", "test"),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", NEEDS)
@pytest.mark.parametrize("part", ["run", "extras", "test", "lint", "docs", "bench", "wheel", "audit"])
def test_a_command_installs_only_the_locks_that_it_needs(checkout: Path, command: str, part: str) -> None:
    (checkout / ".venv" / f"{part}.stamp").unlink()
    done = without_pip(checkout, *command.split())
    assert done.returncode == (3 if part in NEEDS[command] else 0)


@pytest.mark.slow
def test_the_page_is_built_once_and_again_when_its_sources_change(checkout: Path) -> None:
    """npm and node are stand-ins that log their arguments; node also writes a page to the path it is given."""
    tools = checkout.parent / (checkout.name + "-tools")
    tools.mkdir()
    (tools / "npm").write_text('#!/bin/sh\necho "npm $@" >> "$LOG"\nmkdir -p node_modules\n')
    (tools / "node").write_text(
        '#!/bin/sh\n[ "$1" = --version ] && { echo ${NODE_IS:-v20.1.0}; exit; }\n'
        'echo "node $1" >> "$LOG"\nmkdir -p "$2" && touch "$2/index.html"\n'
    )
    for tool in ("npm", "node"):
        (tools / tool).chmod(0o755)
    sources = checkout / "nngkit" / "web" / "doc"
    (sources / "page").mkdir(parents=True)
    (sources / "package.json").write_text("{}")
    log = checkout / "log"
    environment = {"PATH": f"{tools}:/usr/bin:/bin", "LOG": str(log)}
    once = ["npm ci --ignore-scripts --no-audit --no-fund", "node build.js"]

    done = dev(checkout, "web", **(environment | {"NODE_IS": "v12.0.0"}))
    assert (done.returncode, log.exists()) == (3, False)
    assert "Node.js 18 or newer, this is v12.0.0" in done.stderr
    for _ in range(2):
        assert dev(checkout, "web", **environment).returncode == 0
        assert log.read_text().splitlines() == once
    (sources / "page" / "main.js").write_text("1")
    assert dev(checkout, "web", **environment).returncode == 0
    assert log.read_text().splitlines() == once * 2
    (checkout / "nngkit/web/static/doc/index.html").unlink()
    assert dev(checkout, "web", **environment).returncode == 0
    assert log.read_text().splitlines() == once * 3


@pytest.mark.slow
def test_a_wheel_is_built_with_the_page(checkout: Path) -> None:
    (checkout / "nngkit/web/static/doc").mkdir(parents=True)
    (checkout / "nngkit/web/static/doc/index.html").touch()
    (checkout / "nngkit/web/doc/node_modules").mkdir(parents=True)
    (checkout / "nngkit/web/doc/package.json").write_text("{}")
    subprocess.run([sys.executable, "-c", STAMP], cwd=checkout, check=True, timeout=30)
    done = dev(checkout, "wheel")
    assert (done.returncode, done.stdout) == (0, f"-m build --no-isolation --outdir {checkout}/dist {checkout}\n")
    assert dev(checkout, "wheel", "x").returncode == 2
    (checkout / "nngkit/web/doc/package.json").write_text('{"version": "2"}')
    done = dev(checkout, "wheel", PATH="/nowhere")
    assert (done.returncode, done.stdout) == (3, ""), "a wheel contains no outdated page"
    assert "the browser page needs Node.js" in done.stderr


@pytest.mark.slow
def test_without_npm_the_error_names_the_package_to_install(checkout: Path) -> None:
    sources = checkout / "nngkit" / "web" / "doc"
    sources.mkdir(parents=True)
    (sources / "package.json").write_text("{}")
    python = checkout.parent / (checkout.name + "-python")
    python.mkdir()
    done = dev(checkout, "web", PATH=str(python))
    assert done.returncode == 3
    assert "apt-get install nodejs npm" in done.stderr
    assert dev(checkout, "test").returncode == 0
