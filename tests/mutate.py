"""Mutation testing of the pure modules: change one operator, number or statement, run the tests that cover its line.

::

    python3 dev.py mutate                                     # 200 mutants of all modules of law 3
    python3 dev.py mutate nngkit/cluster/jobs --count 50 --seed 7 --tests tests/cluster

One run of the quick tests under coverage says which tests execute which lines, `--reuse` takes that of the last call.
Each mutant is compiled by an import hook in a process of its own, which runs the covering tests until one fails: first
those of the most specific files. A mutant is caught by a failure, a crash, or an endless loop.

Of the known programs, mutmut 3 changes nothing outside functions, so no limit that is a constant of a module, and
needs a copy of the tree; Cosmic Ray runs one command for every mutant, so all tests. Both run until all is changed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.machinery
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any, Final, NamedTuple

import coverage
import hypothesis
import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
DATA: Final = ROOT / ".coverage.mutants"  # the lines of each test
SECONDS: Final = ROOT / ".coverage.mutants-seconds"  # and its duration
# Not those that run programs, Java or networks of sockets, in which no line of a pure module is executed by itself.
TESTS: Final = (
    *[
        "calls",
        "cluster",
        "devices",
        "discovery",
        "documents",
        "fanout",
        "recording",
        "testing",
        "lakehouse/test_plan.py",
    ],
    *(f"journal/test_{name}*.py" for name in ("ingest", "merging", "partition", "record", "segments", "skipping")),
    *(f"protocols/test_{name}*.py" for name in ("batch", "race", "sizes", "sp", "tcp_info", "topics", "websocket")),
    *(f"cli/test_{name}.py" for name in ("diagnosis", "doc_pure", "formats", "hints", "splitting", "traffic")),
    *(f"spark/test_{name}.py" for name in ("columns", "plan", "recorded_order", "worker")),
    *(f"test_{name}.py" for name in ("caps", "envelope", "histogram", "redial", "silence", "upgrading")),
)
MOST_SECONDS: Final = 15.0  # of covering tests in one round, by their duration under coverage
FILES: Final = (2, 12)  # test files of the first round, and of both
MEMORY: Final = 8 << 30  # bytes of address space
ASKED: Final = 90.0  # percent
BROKEN: Final = 70  # exit code of a process in which this program has failed
PAIRS: Final = (
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot), (ast.In, ast.NotIn)),
    *((ast.And, ast.Or), (ast.Add, ast.Sub), (ast.Mult, ast.FloorDiv), (ast.LShift, ast.RShift)),
    *((ast.BitAnd, ast.BitOr), (ast.USub, ast.UAdd)),
)
SWAPS: Final[dict[Any, Any]] = dict((*PAIRS, *((new, old) for old, new in PAIRS)))
NAMES: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
UNCHANGED: Final = frozenset(("annotation", "returns", "decorator_list", "bases"))


class Mutant(NamedTuple):
    """Change of a syntax tree: `owner[key]` or `owner.key` becomes `new`. `node` is shown; the lines are its own."""

    file: str
    tree: ast.Module
    node: Any
    lines: tuple[int, int]  # of the node, and of its statement; 0: executed by the import
    owner: Any
    key: Any
    new: Any

    def apply(self) -> None:
        """Change the tree."""
        if isinstance(self.owner, list):
            self.owner[self.key] = ast.copy_location(self.new, self.owner[self.key])
        elif isinstance(self.new, ast.expr):
            setattr(self.owner, self.key, ast.copy_location(self.new, self.node))
        else:
            setattr(self.owner, self.key, self.new)
        ast.fix_missing_locations(self.tree)

    def shown(self) -> str:
        """Return the changed code before and after; changes the tree."""
        whole = isinstance(self.new, ast.Pass) or self.key == "test"
        before = ast.unparse(self.node)
        self.apply()
        return f"{self.file}:{self.lines[0]}: {before}  ->  {ast.unparse(self.new if whole else self.node)}"


def changes(node: ast.AST) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Yield (shown node, owner, key, new value) of each change of a node, not of its children."""
    match node:
        case ast.Compare():
            yield from ((node, node.ops, i, SWAPS[type(op)]()) for i, op in enumerate(node.ops))
        case ast.BoolOp() | ast.BinOp() | ast.AugAssign() | ast.UnaryOp() if type(node.op) in SWAPS:
            yield node, node, "op", SWAPS[type(node.op)]()
        case ast.Constant(value=bool()):
            yield node, node, "value", not node.value
        case ast.Constant(value=int() | float() as number):
            yield node, node, "value", number + 1
        case ast.Return(value=ast.expr()) if not isinstance(node.value, ast.Constant):
            yield node, node, "value", ast.Constant(None)
        case ast.Call(func=ast.Name(id=name) as function) if name in NAMES:
            yield node, function, "id", NAMES[name]
    if isinstance(node, ast.If | ast.While | ast.IfExp) and not isinstance(node.test, ast.Compare):
        yield node.test, node, "test", ast.UnaryOp(ast.Not(), node.test)
    for statements in (getattr(node, "body", ()), getattr(node, "orelse", ())):
        for i, each in enumerate(statements if isinstance(statements, list) else ()):
            calls = isinstance(each, ast.Expr) and isinstance(each.value, ast.Call | ast.Await)
            sets = isinstance(each, ast.AugAssign | ast.Break | ast.Continue) or (
                isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Attribute | ast.Subscript)
            )
            if calls or sets:
                yield each, statements, i, ast.Pass()


def mutants(file: str) -> Iterator[Mutant]:
    """Yield all mutants of a file, except in types, decorators and texts of messages."""
    tree = ast.parse((ROOT / file).read_text())

    def walk(node: ast.AST, statement: int) -> Iterator[Mutant]:
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            return
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("__all__", "__slots__", "__match_args__"):
            return
        statement = node.lineno if statement and isinstance(node, ast.stmt) else statement
        for shown, owner, key, new in changes(node):
            own = shown.lineno if statement and isinstance(shown, ast.stmt) else statement
            yield Mutant(file, tree, shown, (shown.lineno, own), owner, key, new)
        for name, value in ast.iter_fields(node):
            if name not in UNCHANGED:
                called = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and name == "body"
                for child in value if isinstance(value, list) else (value,):
                    if isinstance(child, ast.AST):
                        yield from walk(child, getattr(child, "lineno", 0) if called else statement)

    return walk(tree, 0)


def module_of(file: str) -> str:
    """Return the name of the module in a file."""
    name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"nngkit.{name}" if name.startswith("protocols") else name


def pure_files() -> list[str]:
    """Return the files of the modules that the contract of law 3 names."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    named = next(each["source_modules"] for each in contracts if each["name"].startswith("Law 3"))
    names = "|".join(re.escape(name).replace(r"\*\*", ".+") for name in named)
    pure = re.compile(rf"({names})(\..+)?")
    found = subprocess.run(["git", "ls-files", "nngkit", "protocols"], cwd=ROOT, capture_output=True, text=True).stdout
    return [file for file in found.splitlines() if file.endswith(".py") and pure.fullmatch(module_of(file))]


# ---- as a plugin of pytest: which test executes which line -----------------------------------------------------------


class Lines:
    """Plugin that measures the pure modules, with each test as a context, in this process or a worker of xdist."""

    def __init__(self, config: pytest.Config) -> None:
        self.seconds: dict[str, float] = {}
        self._has_workers = bool(config.getoption("numprocesses", None))
        files = [str(ROOT / file) for file in pure_files()]
        files += [str(ROOT / "nngkit" / file) for file in pure_files() if file.startswith("protocols")]
        self._coverage = coverage.Coverage(str(DATA), data_suffix=True, include=files, config_file=False)
        self._coverage.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        self._coverage.switch_context(item.nodeid)
        try:
            return (yield)
        finally:
            self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        failed = float("inf") if report.outcome != "passed" else 0.0
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration + failed

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        if not self._has_workers:
            self._coverage.save()
        if "PYTEST_XDIST_WORKER" not in os.environ:
            SECONDS.write_text(json.dumps(self.seconds))


def pytest_configure(config: pytest.Config) -> None:
    """Measure, where this module was given as a plugin."""
    config.pluginmanager.register(Lines(config))


def measure(tests: list[str]) -> None:
    """Run the quick tests; their lines are in DATA."""
    for old in ROOT.glob(f"{DATA.name}*"):
        old.unlink()
    given = tests or [str(path) for pattern in TESTS for path in sorted((ROOT / "tests").glob(pattern))]
    workers = (3 * (os.cpu_count() or 1) + 1) // 2
    command = [sys.executable, *f"-m pytest -p tests.mutate -q -n {workers} --alone=not".split()]
    subprocess.run([*command, *given], cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False)
    whole = coverage.Coverage(str(DATA), config_file=False)
    whole.combine([str(path) for path in ROOT.glob(f"{DATA.name}.*")])
    whole.save()


class Covering:
    """Tests by the lines that they execute, from the run of `measure`."""

    def __init__(self) -> None:
        self._data = coverage.CoverageData(str(DATA))
        self._data.read()
        seconds = json.loads(SECONDS.read_text())
        self._seconds = {test: each for test, each in seconds.items() if each < MOST_SECONDS}
        self._breadth: dict[str, int] = {}
        self._lines = {}
        for path in self._data.measured_files():
            file = str(Path(path).resolve().relative_to(ROOT))
            self._lines[file] = self._data.contexts_by_lineno(path)
            for test in {each for contexts in self._lines[file].values() for each in contexts}:
                self._breadth[test] = self._breadth.get(test, 0) + 1

    def rounds(self, mutant: Mutant) -> list[tuple[list[str], float]]:
        """Return the tests of each round, and the seconds they take. The quickest of the most specific files first."""
        lines = self._lines.get(mutant.file, {})
        found = set(lines.get(mutant.lines[0]) or lines.get(mutant.lines[1]) or ())
        if not mutant.lines[1]:  # a constant or a default, which its neighbours may use
            folder = mutant.file.rpartition("/")[0]
            near = [each for file, each in self._lines.items() if file.rpartition("/")[0] == folder]
            found = {test for lines in near for tests in lines.values() for test in tests}
        by_file: dict[str, list[str]] = {}
        for test in sorted(found & self._seconds.keys(), key=self._seconds.__getitem__):
            by_file.setdefault(test.split("::")[0], []).append(test)
        files = sorted(
            by_file, key=lambda file: sum(self._breadth[each] for each in by_file[file]) / len(by_file[file])
        )
        return [
            self._quickest(test for file in part for test in by_file[file])
            for part in (files[: FILES[0]], files[FILES[0] : FILES[1]])
            if part
        ]

    def _quickest(self, tests: Iterable[str]) -> tuple[list[str], float]:
        chosen, total = [], 0.0
        for test in sorted(tests, key=self._seconds.__getitem__):
            total += self._seconds[test]
            chosen.append(test)
            if total > MOST_SECONDS:
                break
        return chosen, total


# ---- one mutant ------------------------------------------------------------------------------------------------------


class Quickly:
    """Plugin: Hypothesis need not look for the smallest example, nor keep one."""

    def pytest_sessionstart(self) -> None:
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("mutant", deadline=None, database=None, phases=phases)
        hypothesis.settings.load_profile("mutant")


def run_tests(mutant: Mutant | None, tests: list[str], scratch: Path) -> int:
    """Run tests with a changed module; return pytest's exit code. In a process that has not imported nngkit."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    out = os.open(scratch.with_suffix(".out"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    if mutant is not None:
        change_import(mutant)
    options = [
        "-x",
        "-q",
        "--assert=plain",
        "--no-header",
        "-p",
        "no:cacheprovider",
        f"--basetemp={scratch}",
        f"--rootdir={ROOT}",
    ]
    return int(pytest.main([*options, *tests], plugins=[Quickly()]))


def change_import(mutant: Mutant) -> None:
    """Let the import of a module compile the mutant."""
    mutant.apply()
    name, get_code = module_of(mutant.file), importlib.machinery.SourceFileLoader.get_code

    def changed(loader: Any, fullname: str) -> CodeType | None:
        if fullname == name:
            return compile(mutant.tree, str(ROOT / mutant.file), "exec", dont_inherit=True)
        return get_code(loader, fullname)

    importlib.machinery.SourceFileLoader.get_code = changed  # type: ignore[method-assign, assignment]


def is_caught(mutant: Mutant, rounds: list[tuple[list[str], float]], scratch: Path) -> bool:
    """Run the rounds, each in a new process, until a test fails or one takes too long."""
    for tests, seconds in rounds:
        code = ended(forked(run_tests, mutant, tests, scratch), 10 + 3 * seconds)
        if code in (3, 5, BROKEN):
            raise RuntimeError(f"exit code {code}: {scratch.with_suffix('.out').read_text()[-3000:]}")
        if code == 4 and ended(forked(run_tests, None, tests, scratch), 60):  # a failed import, or an unknown test
            raise RuntimeError(f"exit code 4 without a mutant: {scratch.with_suffix('.out').read_text()[-3000:]}")
        if code:
            return True
    return False


def forked(function: Callable[..., int], *arguments: Any) -> int:
    """Call a function in a new process, which ends with its result; return the process's id."""
    if pid := os.fork():
        return pid
    code = BROKEN
    try:
        code = int(function(*arguments))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def ended(pid: int, seconds: float) -> int:
    """Wait for a process; return its exit code, or -9 where it had to be killed. Its group is killed with it."""
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return -9


def main() -> int:
    """Sample mutants, test them, print the survivors and the share caught."""
    parser = argparse.ArgumentParser(prog="dev.py mutate", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("path", nargs="*", help="files or folders; default: all pure modules")
    parser.add_argument("--count", type=int, default=200, help="mutants, at random; default: 200")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    parser.add_argument(
        "--tests", nargs="+", default=[], metavar="PATH", help="only these tests; default: all quick ones"
    )
    parser.add_argument("--reuse", action="store_true", help="take the coverage of the last call: nothing has changed")
    given = parser.parse_args()
    wanted = tuple(path.rstrip("/") + "/" for path in given.path)
    files = [file for file in pure_files() if not wanted or f"{file}/".startswith(wanted)]
    every = [mutant for file in files for mutant in mutants(file)]
    sample = random.Random(given.seed).sample(every, min(given.count, len(every)))
    if not given.reuse:
        measure(given.tests)
    covering = Covering()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    for module in ("pytest_trio", "trio.testing", "hypothesis.strategies", "cbor2", "msgspec", "_pytest.runner"):
        __import__(module)  # once, for all processes
    start, survived = time.monotonic(), 0
    running: dict[int, tuple[Mutant, list[tuple[list[str], float]]]] = {}
    scratch = Path(tempfile.mkdtemp(prefix="mutants-"))
    try:
        while sample or running:
            if sample and len(running) < (os.cpu_count() or 1):
                mutant = sample.pop()
                rounds = covering.rounds(mutant)
                running[forked(is_caught, mutant, rounds, scratch / str(len(sample)))] = mutant, rounds
                continue
            pid, status = os.wait()
            mutant, rounds = running.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            if code not in (False, True):
                raise SystemExit(f"{mutant.shown()}: not tested, exit code {code}")
            if not code:
                survived += 1
                print(mutant.shown(), f"({sum(len(tests) for tests, _ in rounds)} tests)", flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    count = min(given.count, len(every))
    share = 100 * (count - survived) / max(1, count)
    print(f"caught {count - survived} of {count} mutants, {share:.1f} %, seed {given.seed},", end=" ")
    print(f"{len(every):,} possible in {len(files)} modules, {time.monotonic() - start:.0f} s")
    return 0 if share >= ASKED else 1


if __name__ == "__main__":
    sys.exit(main())
