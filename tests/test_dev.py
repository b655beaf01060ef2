"""dev.py with a stand-in for .venv: what it runs, with which arguments, and which exit code comes back.

Making the real .venv is what every run of the tests has just done; here nothing is fetched or installed.
"""

import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
STAND_IN = '#!/bin/sh\necho "$@"\nexit ${STAND_IN_EXIT:-0}\n'
STAMP = """
import dev, hashlib
for part in dev.PARTS:
    (dev.VENV / (part.name + ".stamp")).write_text(hashlib.sha256(part.depends()).hexdigest())
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose .venv is finished, as far as the stamps say, and whose tools only say what they were given."""
    for name in ("dev.py", "pyproject.toml", "requirements.lock", "requirements-spark.lock"):
        shutil.copy(ROOT / name, tmp_path / name)
    for script in ("examples/demo.py", "benchmarks/alpha.py", "benchmarks/beta.py", "benchmarks/_common.py"):
        (tmp_path / script).parent.mkdir(exist_ok=True)
        (tmp_path / script).touch()
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    for tool in ("python", "ruff", "mypy", "lint-imports", "codespell"):
        (tools / tool).write_text(STAND_IN)
        (tools / tool).chmod(0o755)
    subprocess.run([sys.executable, "-c", STAMP], cwd=tmp_path, check=True, timeout=30)
    return tmp_path


def dev(checkout: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(checkout / "dev.py"), *arguments]
    environment = {"PATH": "/usr/bin:/bin"} | environment
    return subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, timeout=30)


def test_arguments_and_the_exit_code_pass_through(checkout: Path) -> None:
    done = dev(checkout, "test", "-k", "some name", STAND_IN_EXIT="5")
    assert (done.stdout, done.returncode) == ("-m pytest -k some name\n", 5)
    done = dev(checkout, "demo", "--fast", STAND_IN_EXIT="1")
    assert (done.stdout, done.returncode) == (f"{checkout}/examples/demo.py --fast\n", 1)


def test_lint_runs_everything_even_when_everything_fails(checkout: Path) -> None:
    done = dev(checkout, "lint", STAND_IN_EXIT="4")
    assert done.stdout.splitlines()[:2] == ["check .", "format --check ."]
    assert "failed: ruff check, ruff format, mypy --strict, import-linter, codespell" in done.stderr
    assert done.returncode == 4


def test_bench_runs_all_in_order_or_those_named(checkout: Path) -> None:
    assert dev(checkout, "bench", "--list").stdout == "alpha\nbeta\n"
    assert dev(checkout, "bench").stdout == f"{checkout}/benchmarks/alpha.py\n{checkout}/benchmarks/beta.py\n"
    assert dev(checkout, "bench", "beta", "--quick").stdout == f"{checkout}/benchmarks/beta.py --quick\n"
    assert dev(checkout, "bench", "beta", "--rounds", "5").stdout == f"{checkout}/benchmarks/beta.py --rounds 5\n"


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["lint", "x"], ["bench", "gamma"]])
def test_wrong_usage_is_one_line_and_exit_code_2(checkout: Path, arguments: list[str]) -> None:
    done = dev(checkout, *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith("dev.py: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_second_run_starts_in_under_a_second(checkout: Path) -> None:
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    dev(checkout, "test")
    wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    # CPU time where the machine is busy with something else: it is the clock less what others took.
    assert min(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) < 1.0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ("pyproject.toml", "installs this checkout"),
        ("requirements.lock", "makes .venv from requirements.lock"),
        ("requirements-spark.lock", "makes .venv from requirements.lock"),
    ],
)
def test_what_changed_is_built_again_and_that_needs_a_pip(checkout: Path, changed: str, message: str) -> None:
    with open(checkout / changed, "a") as file:
        file.write("# changed\n")
    (checkout / "pip.py").write_text("raise SystemExit(1)")  # `python -m pip` finds this one first: there is no pip
    done = dev(checkout, "test", PYTHONPATH=str(checkout), PATH="/nowhere")
    assert done.returncode == 3
    assert message in done.stderr
    assert done.stderr.splitlines()[-1].startswith("dev.py: pip 22.3 or newer is needed, and there is none for ")
    assert (checkout / ".venv" / "bin" / "python").exists(), "nothing is removed before it can be made again"


def test_the_page_is_built_once_and_again_when_its_sources_change(checkout: Path) -> None:
    """npm and node are stand-ins that say what they were told; node also leaves a page where it was told to."""
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
    assert (done.returncode, done.stdout) == (3, ""), "no wheel with a page that is out of date"
    assert "the pages need Node.js" in done.stderr


def test_without_npm_the_page_says_what_to_install(checkout: Path) -> None:
    sources = checkout / "nngkit" / "web" / "doc"
    sources.mkdir(parents=True)
    (sources / "package.json").write_text("{}")
    python = checkout.parent / (checkout.name + "-python")
    python.mkdir()
    done = dev(checkout, "web", PATH=str(python))
    assert done.returncode == 3
    assert "apt-get install nodejs npm" in done.stderr
    assert dev(checkout, "test").returncode == 0


def test_a_quick_demo_does_without_spark(checkout: Path) -> None:
    (checkout / ".venv" / "spark.stamp").unlink()
    (checkout / "pip.py").write_text("raise SystemExit(1)")
    quick = dev(checkout, "demo", "--quick", PYTHONPATH=str(checkout), PATH="/nowhere")
    assert (quick.stdout, quick.returncode) == (f"{checkout}/examples/demo.py --quick\n", 0)
    whole = dev(checkout, "demo", PYTHONPATH=str(checkout), PATH="/nowhere")
    assert whole.returncode == 3
    assert "adds Spark and a Java" in whole.stderr
