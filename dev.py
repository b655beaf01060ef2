#!/usr/bin/env python3
"""Run every development task from a bare Python >= 3.11 and its pip: no root, nothing outside this folder.

::

    python3 dev.py demo  [ARGS]    run examples/demo.py; --quick leaves out Spark, which is large
    python3 dev.py test  [ARGS]    run pytest with ARGS (-k name ...); --slow adds slow tests, --cov a coverage report
    python3 dev.py pythons [ARGS]  run the quick tests of ROOMS with each of OTHER_PYTHONS that is installed
    python3 dev.py rooms   [ARGS]  run these tests with this Python, and no extras but documents and dns
    python3 dev.py mutate [PATH]   change the pure modules at random, and print the changes that no quick test notices
    python3 dev.py extras [NAME]   install each extra alone in a fresh environment, and run its smoke test there
    python3 dev.py faces           write nngkit.aio and nngkit.blocking from the classes under trio, or --check them
    python3 dev.py lint            run ruff, mypy --strict, import-linter, codespell, and check what is generated
    python3 dev.py docs            build the documentation site, strictly, into build/site
    python3 dev.py bench [NAME]    run benchmarks/NAME.py, or all in alphabetical order; --list prints the names
    python3 dev.py web             build the browser page of nngkit/web into nngkit/web/static; needs Node.js and npm
    python3 dev.py wheel           build the browser page, then a wheel and an sdist that contain it, into dist
    python3 dev.py audit           look up vulnerabilities of what the locks pin, and write build/sbom.json
    python3 dev.py lock  [ARGS]    write requirements/*.lock anew with uv; --upgrade takes newer versions

PARTS lists what commands need. A part is built when its stamp in .venv is not the hash of what it depends on, so a
second run starts at once. COMMANDS lists what commands do. Each command fetches only its own parts.

Exit codes: that of the program that was run; 2 wrong usage, 3 .venv could not be built.
This file keeps to Python 3.6 syntax, so that an older Python can still print the version error.
"""

import sys

if sys.version_info < (3, 11):
    sys.exit("dev.py: Python 3.11 or newer is needed, this is %d.%d (%s)" % (*sys.version_info[:2], sys.executable))

import contextlib
import functools
import hashlib
import itertools
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Callable, NamedTuple, NoReturn, Optional

ROOT = Path(__file__).resolve().parent
VENV = ROOT / os.environ.get("NNGKIT_VENV", ".venv")  # `dev.py pythons` has one for each Python
PYTHON = VENV / "bin" / "python"
LOCKS = ROOT / "requirements"
NEEDS_PIP = (22, 3)  # the first version with `pip --python`

OTHER_PYTHONS = ("3.12", "3.13")
ROOMS = ("protocols", "discovery", "calls", "documents")

EXTRAS = ("documents", "journal", "objects", "spark", "java", "template", "editor", "iceberg", "delta", "trust")
EXTRAS += ("dns", "telemetry")

# The locks, in the order in which they are made: each follows the versions of those above. Arguments of uv pip compile.
LOCKED = (
    ("run", "pyproject.toml --group install --extra pretty"),
    ("extras", "pyproject.toml " + " ".join(f"--extra {name}" for name in EXTRAS)),
    ("test", "--group test"),
    ("lint", "--group lint"),
    ("docs", "--group docs"),
    ("bench", "--group bench"),
    ("wheel", "--group wheel"),
    ("audit", "--group audit"),
)


def say(text: str, end: str = "\n") -> None:
    print(text, end=end, file=sys.stderr, flush=True)


def fail(reason: str, code: int = 3) -> NoReturn:
    say("dev.py: " + reason)
    sys.exit(code)


# ---- building .venv --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def step(what: str):
    """Print one line per step, completed with its duration in seconds."""
    start = time.monotonic()
    say(f"  {what} ...", end=" ")
    try:
        yield
    except BaseException:
        say("failed")
        raise
    say(f"{time.monotonic() - start:.1f} s")


def quietly(argv: list, cwd: Path = ROOT, **variables: str) -> None:
    """Run a program without showing its output. Raises StepFailed, with that output, if it fails."""
    out = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    done = subprocess.run(argv, cwd=cwd, env={**os.environ, **variables}, **out)
    if done.returncode:
        raise StepFailed(done.stdout.decode(errors="replace"))


class StepFailed(Exception):
    """A build step failed; the argument is its output."""


@functools.lru_cache(maxsize=None)
def host_pip() -> list:
    """Return the command of a pip outside .venv that can install into it: this Python's own, else one on PATH."""
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


def all_locks() -> bytes:
    return b"".join(LOCKS.joinpath(name + ".lock").read_bytes() for name, _ in LOCKED)


def build_venv() -> None:
    host_pip()  # fail before anything is removed
    with step("an empty .venv"):
        shutil.rmtree(VENV, ignore_errors=True)  # completely: a package that left a lock must leave .venv too
        quietly([sys.executable, "-m", "venv", "--without-pip", str(VENV)])  # Debian's Python has no ensurepip


def install(name: str, lock: Optional[Path] = None) -> None:
    """Install one lock, by default that of the name in requirements.

    Without dependencies: the lock has them all. Without byte code: Python compiles the few modules that a command
    imports. Not isolated: PySpark is a source package, and its build would fetch a setuptools that no lock pins.
    """
    pip = [*host_pip(), "--python", str(PYTHON), "install", "--disable-pip-version-check", "--no-compile"]
    path = lock or LOCKS / (name + ".lock")
    with step(f"the packages of {path.relative_to(ROOT)}"):
        build = str(LOCKS / "build.cfg")
        pip += ["--require-hashes", "--no-deps", "--no-build-isolation", "-r", str(path)]
        quietly(pip, DIST_EXTRA_CONFIG=build)


def install_extras(*extras: str) -> None:
    """Install what single extras need, as requirements/extras.lock pins it."""
    import tomllib  # here, as Python 3.6 has to get past the imports

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = {re.match(r"[\w.-]+", line)[0].lower() for extra in extras for line in declared[extra]}
    path = VENV / ("-".join(extras) + ".lock")
    path.write_text(pinned((LOCKS / "extras.lock").read_text(), wanted))
    install(path.stem, path)


def pinned(lock: str, wanted: set) -> str:
    """Return the entries of a lock for the packages ``wanted`` and for all that those need, by its "via" comments."""
    entries = {}
    for entry in re.split(r"^(?=[\w.-]+==)", lock, flags=re.MULTILINE)[1:]:
        needed_by = re.findall(r"^ +#(?: via|  ) +([\w.-]+)", entry, re.MULTILINE)
        entries[entry.partition("==")[0]] = (entry, needed_by)
    wanted, before = set(wanted), set()
    while wanted != before:
        before = set(wanted)
        wanted |= {name for name, (_, needed_by) in entries.items() if wanted.intersection(needed_by)}
    return "".join(entry for name, (entry, _) in entries.items() if name in wanted)


EDITABLE = "import sys; from setuptools import build_meta; build_meta.build_editable(sys.argv[1])"
SCRIPT = "#!{python}\nimport sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n"


def install_nngkit() -> None:
    """Install this checkout so that changes take effect at once, as `pip install --editable` does in 2 s of CPU."""
    with step("nngkit, editable"), tempfile.TemporaryDirectory() as scratch:
        quietly([str(PYTHON), "-c", EDITABLE, scratch])
        packages = next(VENV.glob("lib/python*/site-packages"))
        for old in packages.glob("nngkit-*.dist-info"):
            shutil.rmtree(old)
        with zipfile.ZipFile(next(Path(scratch).glob("*.whl"))) as wheel:
            wheel.extractall(packages)
        for entry_points in packages.glob("nngkit-*.dist-info/entry_points.txt"):
            scripts = entry_points.read_text().partition("[console_scripts]")[2].partition("\n[")[0]
            for name, module, function in re.findall(r"^(\S+) *= *(\S+):(\S+)$", scripts, re.MULTILINE):
                script = VENV / "bin" / name
                script.write_text(SCRIPT.format(python=PYTHON, module=module, function=function))
                script.chmod(0o755)


PAGE = ROOT / "nngkit" / "web" / "doc"
PAGE_BUILT = ROOT / "nngkit" / "web" / "static" / "doc"
NEEDS_NODE = 18  # the oldest major version that the bundler supports


def page_sources() -> bytes:
    """Return the page's sources, and whether the page is still there: its folders may have been cleaned."""
    files = sorted(PAGE.glob("*.js*")) + sorted((PAGE / "page").glob("*"))
    built = (PAGE_BUILT / "index.html").exists() and (PAGE / "node_modules").exists()
    return b"".join(b"%s\0%s\0" % (str(file).encode(), file.read_bytes()) for file in files) + (b"1" if built else b"0")


def build_page() -> None:
    for program in ("node", "npm"):
        if not shutil.which(program):
            fail(
                f"the browser page needs Node.js {NEEDS_NODE} or newer and npm; {program} is missing"
                " (Debian, Ubuntu: apt-get install nodejs npm)"
            )
    version = subprocess.run(["node", "--version"], stdout=subprocess.PIPE).stdout.decode().strip()
    if int(version.lstrip("v").split(".")[0] or 0) < NEEDS_NODE:
        fail(f"the browser page needs Node.js {NEEDS_NODE} or newer, this is {version}")
    with step("the packages of package-lock.json"):  # no package needs its install script
        quietly(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], PAGE)
    with step("the browser page"):
        quietly(["node", "build.js", str(PAGE_BUILT)], PAGE)


class Part(NamedTuple):
    """Something that commands need; ``build`` runs whenever ``depends`` differs from the last build."""

    name: str
    announcement: str  # printed before the build
    depends: Callable  # () -> bytes
    build: Callable  # () -> None


def locked(name: str, announcement: str) -> Part:
    """Return the part that installs one lock."""

    def depends() -> bytes:
        return LOCKS.joinpath(name + ".lock").read_bytes() + (VENV / "venv.stamp").read_bytes()

    return Part(name, announcement, depends, functools.partial(install, name))


PARTS = (
    Part(
        "venv",
        "makes .venv",
        # A virtual environment cannot be moved, and a package that leaves a lock has to leave .venv.
        lambda: all_locks() + repr((sys.version_info[:2], str(ROOT))).encode(),
        build_venv,
    ),
    locked("run", "installs the dependencies of nngkit: 8 MB to download, 25 MB on disk"),
    Part(
        "nngkit",
        "installs this checkout into .venv",
        lambda: (ROOT / "pyproject.toml").read_bytes() + (VENV / "venv.stamp").read_bytes(),
        install_nngkit,
    ),
    locked("extras", "adds the extras, with Spark and a Java: 660 MB to download, 1,060 MB on disk"),
    Part(
        "rooms",
        "adds the extras documents and dns: 3 MB to download",
        lambda: (LOCKS / "extras.lock").read_bytes() + (VENV / "venv.stamp").read_bytes(),
        functools.partial(install_extras, "documents", "dns"),
    ),
    locked("test", "adds the test tools: 105 MB to download"),
    locked("lint", "adds the linters: 30 MB to download"),
    locked("docs", "adds the site builder: 26 MB to download"),
    locked("bench", "adds the systems that benchmarks compare with: 80 MB to download"),
    locked("wheel", "adds the wheel builder: less than 1 MB to download"),
    locked("audit", "adds the auditor of dependencies: 5 MB to download"),
    Part(
        "web",
        "builds the browser page: 5 MB to download from npm, 25 MB on disk",
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
    """Build the parts that are not up to date, in the order of PARTS; only one dev.py builds at a time."""
    wanted = [part for part in PARTS if part.name in names]
    if all(is_built(part) for part in wanted):
        return
    with one_at_a_time():
        for part in wanted:
            if is_built(part):
                continue
            say(f"dev.py: {part.announcement}")
            start = time.monotonic()
            try:
                part.build()
            except StepFailed as failure:
                say(str(failure))
                fail(f"{part.name} could not be built; the output above says why")
            (VENV / (part.name + ".stamp")).write_text(hashlib.sha256(part.depends()).hexdigest())
            say(f"  done in {time.monotonic() - start:.1f} s")


@contextlib.contextmanager
def one_at_a_time():
    import fcntl

    with open(ROOT / ".dev.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("dev.py: waiting for another dev.py to finish its build")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# ---- the commands: each turns its arguments into a list of (name, argv) ----------------------------------------------


def demo(arguments: list) -> list:
    script = ROOT / "examples" / "demo.py"
    if not script.exists():
        fail(f"there is no {script.relative_to(ROOT)}", 2)
    return [("demo", [PYTHON, script, *arguments])]


# Tests also wait, so three workers keep two CPUs busy; each takes 6 s of CPU to collect the tests. Other arguments
# select or debug tests: one process runs them, starts at once and prints as it goes. The slowest tests are listed:
# docs/testing.md has the limit for all of them.
IN_PARALLEL = ("-n", str((3 * (os.cpu_count() or 1) + 1) // 2), "--durations=30")
OF_ALL_TESTS = {"--slow", "-q", "-v", "-x", "-rP"}


def test(arguments: list) -> list:
    pytest = [PYTHON, "-m", "pytest"]
    if "--cov" not in arguments:
        if not OF_ALL_TESTS.issuperset(arguments):
            return [("pytest", [*pytest, *arguments])]
        plan = [("pytest", [*pytest, *IN_PARALLEL, "--alone=not", *arguments])]
        if "--slow" in arguments:  # limits of programs for people are checked with nothing beside them
            plan.append(("pytest, one by one", [*pytest, "--durations=30", "--alone=only", *arguments]))
        return plan
    # On request only: tracing makes the tests two to three times slower.
    rest = [argument for argument in arguments if argument != "--cov"]
    coverage = [PYTHON, "-m", "coverage"]
    return [
        ("coverage erase", [*coverage, "erase"]),
        ("pytest", [*coverage, "run", "-m", "pytest", *rest]),
        ("coverage combine", [*coverage, "combine", "--quiet"]),
        ("coverage report", [*coverage, "report"]),
    ]


def rooms(arguments: list) -> list:
    tests = [ROOT / "tests" / room for room in ROOMS]
    return [("pytest", [PYTHON, "-m", "pytest", *IN_PARALLEL, "-q", *tests, *arguments])]


def pythons(arguments: list) -> list:
    """Run this program's command `rooms` with each Python, in an environment of its own."""
    plan = []
    for version in OTHER_PYTHONS:
        python = interpreter(version)
        if python is None:
            say(f"dev.py: there is no Python {version} here (looked on PATH and in ~/.pyenv)")
            continue
        own = ["/usr/bin/env", f"NNGKIT_VENV=.venv-{version}", str(python), str(ROOT / "dev.py")]
        plan.append((f"Python {version}", [*own, "rooms", *arguments]))
    return plan


def interpreter(version: str) -> Optional[str]:
    """Return a Python of that version that starts: pyenv has programs on PATH that only say that none is active."""
    of_pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
    for found in (shutil.which(f"python{version}"), *map(str, of_pyenv)):
        if found and not subprocess.run([found, "-c", ""], stderr=subprocess.DEVNULL).returncode:
            return found
    return None


def mutate(arguments: list) -> list:
    return [("mutate", [PYTHON, ROOT / "tests" / "mutate.py", *arguments])]


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
        *faces(["--check"]),
        ("docs/wire.md", [PYTHON, ROOT / "docs" / "cddl.py", "--check"]),
    ]


def faces(arguments: list) -> list:
    if arguments not in ([], ["--check"]):
        fail("faces takes no argument but --check", 2)
    return [("faces", [PYTHON, ROOT / "tools" / "faces.py", *arguments])]


def extras(arguments: list) -> list:
    known = ("base", "pretty", *EXTRAS)
    if not set(arguments) <= set(known):
        fail("there are these extras: " + " ".join(known), 2)
    return [(name, [PYTHON, ROOT / "tests" / "alone" / "run.py", name]) for name in arguments or known]


def bench(arguments: list) -> list:
    scripts = {path.stem: path for path in sorted((ROOT / "benchmarks").glob("[!_]*.py"))}
    if "--list" in arguments:
        print("\n".join(scripts))
        sys.exit(0)
    # Names come first: a word after an option may be its value.
    given = list(itertools.takewhile(lambda argument: not argument.startswith("-"), arguments))
    names = given or list(scripts)
    unknown = [name for name in names if name not in scripts]
    if unknown or not names:
        fail("no benchmark {}; there are: {}".format(" ".join(unknown), " ".join(scripts) or "none yet"), 2)
    return [(name, [PYTHON, scripts[name], *arguments[len(given) :]]) for name in names]


def docs(arguments: list) -> list:
    if arguments:
        fail("docs takes no arguments", 2)
    return [
        ("pages", [PYTHON, ROOT / "docs" / "build.py"]),
        ("site", [VENV / "bin" / "zensical", "build", "--strict", "--clean"]),
        ("names", [PYTHON, ROOT / "docs" / "build.py", "--check"]),
    ]


def web(arguments: list) -> list:
    if arguments:
        fail("web takes no arguments", 2)
    return []  # the part is the whole command


def wheel(arguments: list) -> list:
    if arguments:
        fail("wheel takes no arguments", 2)
    # Not isolated, as above. The wheel is built from the sdist, so a file missing there fails here.
    return [("build", [PYTHON, "-m", "build", "--no-isolation", "--outdir", ROOT / "dist", ROOT])]


def audit(arguments: list) -> list:
    if arguments:
        fail("audit takes no arguments", 2)
    return [("audit", [PYTHON, ROOT / "tools" / "audit.py"])]


def lock(arguments: list) -> list:
    uv = shutil.which("uv")
    if uv is None:
        fail("the locks are made with uv, which is not on PATH: pip install uv, anywhere but in .venv", 2)
    options = ["--quiet", "--universal", "--python-version", "3.11", "--generate-hashes"]
    options += ["--no-emit-index-url", "--no-emit-find-links", "--custom-compile-command", "python3 dev.py lock"]
    command = [uv, "pip", "compile", *options, *arguments]
    plan: list = []
    above: list = []
    for name, what in LOCKED:
        path = f"requirements/{name}.lock"
        plan.append((path, [*command, *what.split(), *above, "--output-file", path]))
        above += ["--constraint", path]
    return plan


class Command(NamedTuple):
    """A subcommand of dev.py: the parts it needs and the programs it runs."""

    plan: Callable  # (arguments) -> [(name, argv)]
    parts: tuple
    spares: tuple = ()  # (an option, the part that is not needed with it)


RUN = ("venv", "run", "nngkit")
COMMANDS = {
    "demo": Command(demo, (*RUN, "extras"), (("--quick", "extras"),)),
    "test": Command(test, (*RUN, "extras", "test", "lint", "bench", "wheel")),  # tests run mypy, build and benchmarks
    "mutate": Command(mutate, (*RUN, "extras", "test", "lint", "bench", "wheel")),  # it runs the tests
    "rooms": Command(rooms, (*RUN, "rooms", "test")),
    "pythons": Command(pythons, ()),
    "extras": Command(extras, (*RUN, "extras", "test")),  # one serves S3 by the tests' server
    "lint": Command(lint, (*RUN, "extras", "test", "lint")),  # mypy reads the types of all that is imported
    "faces": Command(faces, ("venv", "lint")),  # reads the sources, imports nothing
    "docs": Command(docs, ("venv", "docs")),  # reads the sources, imports nothing
    "bench": Command(bench, (*RUN, "extras", "test", "bench")),  # they use the tests' networks, audits and hosts
    "web": Command(web, ("venv", "web")),
    "wheel": Command(wheel, ("venv", "run", "wheel", "web")),
    "audit": Command(audit, ("venv", "audit")),
    "lock": Command(lock, ()),
}


# ---- running them ----------------------------------------------------------------------------------------------------


def run_all(plan: list) -> int:
    """Run every step even if one fails, print which failed, and return the exit code of the first failure."""
    codes = {}
    for name, argv in plan:
        say(f"== {name}")
        start = time.monotonic()
        child = subprocess.Popen(argv, cwd=ROOT)
        try:
            code = child.wait()
        except KeyboardInterrupt:  # the terminal interrupted the child too: let it clean up
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
    # Packages are installed without byte code: told to keep none, each process would compile all that it imports, and
    # pytest rewrite every assertion again, in each worker.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if arguments[:1] in (["-h"], ["--help"]):
        print(__doc__.split("\n\n")[2])
        return 0
    if not arguments or arguments[0] not in COMMANDS:
        fail("usage: python3 dev.py {} [ARGS]".format(" | ".join(COMMANDS)), 2)
    command = COMMANDS[arguments[0]]
    plan = command.plan(arguments[1:])  # first, so that a wrong argument is reported before anything is built
    unneeded = [part for option, part in command.spares if option in arguments]
    prepare(tuple(part for part in command.parts if part not in unneeded))
    if not plan:
        say("dev.py: up to date")
        return 0
    if len(plan) == 1:  # replace this process: the program gets the signals and the terminal, and sets the exit code
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
