#!/usr/bin/env python3
"""Everything a developer runs, from a bare Python >= 3.11 and its pip; no root, nothing outside this folder.

::

    python3 dev.py demo  [ARGS]    the demonstration, examples/demo.py; --quick does without Spark, which is large
    python3 dev.py test  [ARGS]    pytest with ARGS (-k name ...); --slow adds the slow tests, --cov a coverage report
    python3 dev.py lint            ruff (check, format), mypy --strict, import-linter, codespell: all of them, each time
    python3 dev.py bench [NAME]    benchmarks/NAME.py, or all in order of name; --list names them
    python3 dev.py web             builds the pages of nngkit/web into nngkit/web/static; needs Node.js and npm
    python3 dev.py wheel           builds the pages, then a wheel and an sdist that have them inside, into dist

What a command needs is a row of PARTS: it is built when its stamp (a hash of all that it depends on) is not the one in
.venv, so the second run goes straight to work. What a command does is a row of COMMANDS. A new need (npm packages) is a
new row and not a new `if`.

Exit codes: those of what was run; 2 for wrong usage, 3 when .venv cannot be made.
This file alone keeps to the syntax of Python 3.6: an old Python has to get as far as being told.
"""

import sys

if sys.version_info < (3, 11):
    sys.exit("dev.py: Python 3.11 or newer is needed, this is %d.%d (%s)" % (*sys.version_info[:2], sys.executable))

import contextlib
import functools
import hashlib
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Callable, NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOCK = ROOT / "requirements.lock"
SPARK_LOCK = ROOT / "requirements-spark.lock"  # Spark and a Java: five times as much as all the rest
NEEDS_PIP = (22, 3)  # the first with `pip --python`


def say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


def fail(reason: str, code: int = 3) -> NoReturn:
    say("dev.py: " + reason)
    sys.exit(code)


# ---- building .venv --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def step(what: str):
    """One line a step, finished with the seconds it took."""
    start = time.monotonic()
    say(f"  {what} ...", end=" ")
    try:
        yield
    except BaseException:
        say("failed")
        raise
    say(f"{time.monotonic() - start:.1f} s")


def quietly(argv: list, cwd: Path = ROOT) -> None:
    """Run it with its output kept back, and show all of it if it fails."""
    done = subprocess.run(argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        raise StepFailed(done.stdout.decode(errors="replace"))


class StepFailed(Exception):
    """A step of the build ended badly; its output is the argument."""


@functools.lru_cache(maxsize=None)
def host_pip() -> list:
    """The command of a pip outside .venv that can install into .venv: this Python's own, else one on PATH."""
    too_old = None
    for argv in ([sys.executable, "-m", "pip"], ["pip3"], ["pip"]):
        if not shutil.which(argv[0]):
            continue
        done = subprocess.run([*argv, "--version"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        words = done.stdout.decode(errors="replace").split()
        if done.returncode or len(words) < 2:
            continue
        if tuple(int(part) for part in words[1].split(".")[:2] if part.isdigit()) >= NEEDS_PIP:
            return argv
        too_old = words[1]
    wanted = "pip {}.{} or newer is needed".format(*NEEDS_PIP)
    if too_old:
        fail(f"{wanted}, this is {too_old}")
    fail(f"{wanted}, and there is none for {sys.executable} (Debian, Ubuntu: apt-get install python3-pip)")


def pip_install(*arguments: str) -> None:
    quietly([*host_pip(), "--python", str(PYTHON), "install", "--disable-pip-version-check", *arguments])


def pinned(name: str) -> str:
    """The lock's entry for one package, its hashes with it."""
    lines = LOCK.read_text().splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(name + "=="))
    last = next(number for number in range(first, len(lines)) if not lines[number].endswith("\\"))
    return "\n".join(lines[first : last + 1]) + "\n"


def build_venv() -> None:
    host_pip()  # complain before anything is removed
    with step("an empty .venv"):
        shutil.rmtree(VENV, ignore_errors=True)  # whole: what left the lock has to leave .venv too
        quietly([sys.executable, "-m", "venv", "--without-pip", str(VENV)])  # Debian's Python has no ensurepip
    with step("setuptools"), tempfile.TemporaryDirectory() as scratch:
        alone = Path(scratch, "setuptools.txt")
        alone.write_text(pinned("setuptools"))
        pip_install("--require-hashes", "-r", str(alone))
    # Not isolated: an isolated build fetches a setuptools of its own, which nobody pinned.
    with step("the packages of requirements.lock"):
        pip_install("--require-hashes", "--no-build-isolation", "-r", str(LOCK))


def install_spark() -> None:
    host_pip()
    # Not isolated either: PySpark is a source package.
    with step("the packages of requirements-spark.lock"):
        pip_install("--require-hashes", "--no-build-isolation", "-r", str(SPARK_LOCK))


def install_nngkit() -> None:
    host_pip()
    with step("nngkit, editable"):
        pip_install("--no-deps", "--no-build-isolation", "--editable", str(ROOT))


PAGE = ROOT / "nngkit" / "web" / "doc"
PAGE_BUILT = ROOT / "nngkit" / "web" / "static" / "doc"
NEEDS_NODE = 18  # what the bundler runs on


def page_sources() -> bytes:
    """All that the page is made of, and whether it was made: its folders may have been cleaned since."""
    files = sorted(PAGE.glob("*.js*")) + sorted((PAGE / "page").glob("*"))
    built = (PAGE_BUILT / "index.html").exists() and (PAGE / "node_modules").exists()
    return b"".join(b"%s\0%s\0" % (str(file).encode(), file.read_bytes()) for file in files) + (b"1" if built else b"0")


def build_page() -> None:
    for program in ("node", "npm"):
        if not shutil.which(program):
            fail(
                f"the pages need Node.js {NEEDS_NODE} or newer and npm, and there is no {program}"
                " (Debian, Ubuntu: apt-get install nodejs npm)"
            )
    version = subprocess.run(["node", "--version"], stdout=subprocess.PIPE).stdout.decode().strip()
    if int(version.lstrip("v").split(".")[0] or 0) < NEEDS_NODE:
        fail(f"the pages need Node.js {NEEDS_NODE} or newer, this is {version}")
    with step("the packages of package-lock.json"):  # their scripts are not run: none is needed
        quietly(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], PAGE)
    with step("the page"):
        quietly(["node", "build.js", str(PAGE_BUILT)], PAGE)


class Part(NamedTuple):
    """Something commands need: built by ``build`` whenever ``depends`` differs from what it was built from."""

    name: str
    needs: str  # said before it is built
    depends: Callable  # () -> bytes
    build: Callable  # () -> None


PARTS = (
    Part(
        "venv",
        "makes .venv from requirements.lock: about 80 MB to fetch the first time, 350 MB on disk",
        # .venv does not survive a move; and what left either lock has to leave .venv
        lambda: LOCK.read_bytes() + SPARK_LOCK.read_bytes() + repr((sys.version_info[:2], str(ROOT))).encode(),
        build_venv,
    ),
    Part(
        "spark",
        "adds Spark and a Java from requirements-spark.lock: about 620 MB to fetch the first time, 1 GB on disk",
        lambda: SPARK_LOCK.read_bytes() + (VENV / "venv.stamp").read_bytes(),
        install_spark,
    ),
    Part(
        "nngkit",
        "installs this checkout into .venv",
        lambda: (ROOT / "pyproject.toml").read_bytes() + (VENV / "venv.stamp").read_bytes(),
        install_nngkit,
    ),
    Part(
        "web",
        "builds the pages: 5 MB to fetch from npm, 25 MB on disk",
        page_sources,
        build_page,
    ),
)


def is_built(part: Part) -> bool:
    with contextlib.suppress(OSError):
        now = hashlib.sha256(part.depends()).hexdigest()
        return PYTHON.exists() and (VENV / (part.name + ".stamp")).read_text() == now
    return False


def prepare(names: tuple) -> None:
    """Build the parts that are not built yet, in the order of PARTS; one dev.py at a time."""
    wanted = [part for part in PARTS if part.name in names]
    if all(is_built(part) for part in wanted):
        return
    with one_at_a_time():
        for part in wanted:
            if is_built(part):
                continue
            say(f"dev.py: {part.needs}")
            start = time.monotonic()
            try:
                part.build()
            except StepFailed as failure:
                say(str(failure))
                fail(f"{part.name} could not be built; what went wrong is above")
            (VENV / (part.name + ".stamp")).write_text(hashlib.sha256(part.depends()).hexdigest())
            say(f"  done in {time.monotonic() - start:.1f} s")


@contextlib.contextmanager
def one_at_a_time():
    import fcntl

    with open(ROOT / ".dev.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("dev.py: waiting for another dev.py, which is at it already")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# ---- the commands: each turns its arguments into a list of (name, argv) ----------------------------------------------


def demo(arguments: list) -> list:
    script = ROOT / "examples" / "demo.py"
    if not script.exists():
        fail(f"there is no {script.relative_to(ROOT)}", 2)
    return [("demo", [PYTHON, script, *arguments])]


def test(arguments: list) -> list:
    if "--cov" not in arguments:
        return [("pytest", [PYTHON, "-m", "pytest", *arguments])]
    # Only when asked: tracing makes the tests two to three times as slow.
    rest = [argument for argument in arguments if argument != "--cov"]
    coverage = [PYTHON, "-m", "coverage"]
    return [
        ("coverage erase", [*coverage, "erase"]),
        ("pytest", [*coverage, "run", "-m", "pytest", *rest]),
        ("coverage combine", [*coverage, "combine", "--quiet"]),
        ("coverage report", [*coverage, "report"]),
    ]


def lint(arguments: list) -> list:
    if arguments:
        fail("lint takes no arguments", 2)
    bin_ = VENV / "bin"
    return [
        ("ruff check", [bin_ / "ruff", "check", "."]),
        ("ruff format", [bin_ / "ruff", "format", "--check", "."]),
        ("mypy --strict", [bin_ / "mypy"]),
        ("import-linter", [bin_ / "lint-imports", "--no-logo"]),
        ("codespell", [bin_ / "codespell"]),
    ]


def bench(arguments: list) -> list:
    scripts = {path.stem: path for path in sorted((ROOT / "benchmarks").glob("[!_]*.py"))}
    if "--list" in arguments:
        print("\n".join(scripts))
        sys.exit(0)
    # names come first: what follows an option may be its value
    given = list(itertools.takewhile(lambda argument: not argument.startswith("-"), arguments))
    names = given or list(scripts)
    unknown = [name for name in names if name not in scripts]
    if unknown or not names:
        fail("no benchmark {}; there is: {}".format(" ".join(unknown), " ".join(scripts) or "none yet"), 2)
    return [(name, [PYTHON, scripts[name], *arguments[len(given) :]]) for name in names]


def web(arguments: list) -> list:
    if arguments:
        fail("web takes no arguments", 2)
    return []  # to have it built is all


def wheel(arguments: list) -> list:
    if arguments:
        fail("wheel takes no arguments", 2)
    # Not isolated, as above; the wheel is made from the sdist, so that one that lacks something fails here.
    return [("build", [PYTHON, "-m", "build", "--no-isolation", "--outdir", ROOT / "dist", ROOT])]


class Command(NamedTuple):
    plan: Callable  # (arguments) -> [(name, argv)]
    parts: tuple
    spares: tuple = ()  # (an option, the part that is not needed with it)


PYTHON_SIDE = tuple(part.name for part in PARTS if part.name != "web")
COMMANDS = {
    "demo": Command(demo, PYTHON_SIDE, (("--quick", "spark"),)),
    "test": Command(test, PYTHON_SIDE),
    "lint": Command(lint, PYTHON_SIDE),
    "bench": Command(bench, PYTHON_SIDE),
    "web": Command(web, ("venv", "web")),
    "wheel": Command(wheel, ("venv", "web")),
}


# ---- running them ----------------------------------------------------------------------------------------------------


def run_all(plan: list) -> int:
    """Run every step even when one fails, say which did, and return the first failure's exit code."""
    codes = {}
    for name, argv in plan:
        say(f"== {name}")
        start = time.monotonic()
        child = subprocess.Popen(argv, cwd=ROOT)
        try:
            code = child.wait()
        except KeyboardInterrupt:  # the child was interrupted too, it is on the same terminal: let it end in its way
            child.wait()
            raise
        finally:
            if child.poll() is None:
                child.terminate()
        codes[name] = 128 - code if code < 0 else code
        say(f"== {name}: {f'exit code {codes[name]}' if code else 'ok'}, {time.monotonic() - start:.1f} s")
    failed = [name for name, code in codes.items() if code]
    say("== failed: " + ", ".join(failed) if failed else "== all ok")
    return next(filter(None, codes.values()), 0)


def main(arguments: list) -> int:
    if arguments[:1] in (["-h"], ["--help"]):
        print(__doc__.split("\n\n")[2])
        return 0
    if not arguments or arguments[0] not in COMMANDS:
        fail("usage: python3 dev.py {} [ARGS]".format(" | ".join(COMMANDS)), 2)
    command = COMMANDS[arguments[0]]
    plan = command.plan(arguments[1:])  # first: a wrong argument is told before anything is built
    spared = [part for option, part in command.spares if option in arguments]
    prepare(tuple(part for part in command.parts if part not in spared))
    if not plan:
        say("dev.py: built, as of now")
        return 0
    if len(plan) == 1:  # become it: its exit code, its signals and its terminal are then its own
        os.chdir(ROOT)
        os.execv(plan[0][1][0], [str(word) for word in plan[0][1]])
    return run_all(plan)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        say("")
        sys.exit(130)
