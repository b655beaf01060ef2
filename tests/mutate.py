"""Mutation testing of the pure modules: change one operator, number or statement, run the tests that cover its line.

::

    python3 dev.py mutate                                     # 200 mutants of all modules of law 3
    python3 dev.py mutate nngkit/cluster/jobs --count 50 --seed 7

The quick tests run once under coverage, which says which of them execute which lines. That is kept: the next call
measures again only test files that have changed, and those that execute a pure module that has changed. Each mutant is
compiled by an import hook in a process of its own, which runs the covering tests until one fails: the quickest of each
file up to MOST_SECONDS, those of the most specific files first. A mutant is caught by a failure, a crash, or an endless
loop.

Not changed are texts, types, decorators, class options, assertions, what is raised with an error, `__repr__`, and
numbers that are constants of a module: those that are limits have a test each (test_caps.py). Mutants that change
nothing that can be seen are listed in equivalent_mutants.toml with the reason; an entry that no longer fits the source
is an error.

Of the known programs, mutmut 3 changes nothing outside functions, and
needs a copy of the tree; Cosmic Ray runs one command for every mutant, so all tests. Both run until all is changed.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
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
from collections.abc import Callable, Generator, Iterator
from itertools import zip_longest
from pathlib import Path
from types import CodeType
from typing import Any, Final, NamedTuple

import coverage
import hypothesis
import pytest

ROOT: Final = Path(__file__).resolve().parent.parent
DATA: Final = ROOT / ".coverage.mutants"  # the lines of each test
KNOWN: Final = ROOT / ".coverage.mutants-known"  # the duration of each, and the hashes of the files
NEWS: Final = ROOT / ".coverage.mutants-news"  # durations of the last call of pytest
EQUIVALENT: Final = ROOT / "tests" / "equivalent_mutants.toml"
# Not those that run programs, Java or networks of sockets, in which no line of a pure module is executed by itself.
TESTS: Final = (
    *(f"{room}/**/test_*.py" for room in ("calls", "cluster", "devices", "discovery", "documents", "fanout")),
    *(f"{room}/**/test_*.py" for room in ("recording", "spark", "testing")),
    "lakehouse/test_plan.py",
    *(f"journal/test_{name}*.py" for name in ("ingest", "merging", "partition", "record", "segments", "skipping")),
    *(f"protocols/test_{name}*.py" for name in ("batch", "priorities", "race", "sizes", "sp", "tcp_info", "topics")),
    *(f"protocols/test_{name}*.py" for name in ("shared_slots", "subscribing", "tls_layer", "websocket")),
    *(f"cli/test_{name}.py" for name in ("bad_input", "diagnosis", "doc_pure", "formats", "hints", "main", "manual")),
    *(f"cli/test_{name}.py" for name in ("matrix", "spark_output", "splitting", "stand_ins", "traffic")),
    *(f"test_{name}.py" for name in ("caps", "cddl", "doctests", "envelope", "histogram", "messages")),
    *(f"test_{name}.py" for name in ("decisions", "histories", "redial", "silence", "upgrading", "wire_of_0_1")),
)
MOST_SECONDS: Final = 30.0  # of covering tests, by their duration under coverage
OF_CONSTANTS: Final = tuple(f"tests/test_{name}.py" for name in ("caps", "cddl"))  # of all modules
SPECIFIC: Final = 2  # test files that are run before all others
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
UNNAMED: Final = frozenset(("__all__", "__slots__", "__match_args__", "__repr__", "__str__"))


class Mutant(NamedTuple):
    """Change of a syntax tree: `owner[key]` or `owner.key` becomes `new`. `node` is shown; the lines are its own."""

    file: str
    tree: ast.Module
    node: Any
    lines: tuple[int, int]  # of the node, and of its statement; 0: executed by the import
    owner: Any
    key: Any
    new: Any

    def change(self) -> None:
        """Change the tree."""
        self._put(ast.copy_location(self.new, self.node) if isinstance(self.new, ast.AST) else self.new)
        ast.fix_missing_locations(self.tree)

    def text(self) -> str:
        """Return the changed code before and after."""
        whole = isinstance(self.new, ast.Pass) or self.key == "test"
        before, old = ast.unparse(self.node), self._put(self.new)
        after = ast.unparse(self.new if whole else self.node)
        self._put(old)
        return f"{before}  ->  {after}"

    def name(self) -> tuple[str, str, str]:
        """Return what is the same when lines are moved: the file, the line's code and the change."""
        return self.file, (ROOT / self.file).read_text().splitlines()[self.node.lineno - 1].strip(), self.text()

    def _put(self, value: Any) -> Any:
        """Put a value in place of another; return the other."""
        if isinstance(self.owner, list):
            old, self.owner[self.key] = self.owner[self.key], value
        else:
            old = getattr(self.owner, self.key)
            setattr(self.owner, self.key, value)
        return old


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
    """Yield all mutants of a file."""
    tree = ast.parse((ROOT / file).read_text())

    def walk(node: ast.AST, statement: int) -> Iterator[Mutant]:
        imported = not statement
        statement = getattr(node, "lineno", 0) if statement and isinstance(node, ast.stmt) else statement
        for shown, owner, key, new in changes(node):
            inside = statement or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            own = shown.lineno if inside and isinstance(shown, ast.stmt) else statement
            yield Mutant(file, tree, shown, (shown.lineno, own), owner, key, new)
        for name, value in ast.iter_fields(node):
            called = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and name == "body"
            for child in value if isinstance(value, list) else (value,):
                if isinstance(child, ast.AST) and name not in UNCHANGED and not is_left_out(node, child, imported):
                    yield from walk(child, getattr(child, "lineno", 0) if called else statement)

    return walk(tree, 0)


def is_left_out(parent: ast.AST, node: ast.AST, imported: bool) -> bool:
    """Return True for what the docstring of this module says is not changed."""
    match node:
        case ast.JoinedStr() | ast.Raise() | ast.Assert():
            return True
        case ast.If(test=test):
            return "TYPE_CHECKING" in ast.unparse(test)
        case ast.AnnAssign(annotation=ast.Name(id="TypeAlias")):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.FunctionDef(name=name):
            return name in UNNAMED
        case ast.keyword(arg=name):
            return isinstance(parent, ast.ClassDef) or name == "strict"
        case ast.Constant(value=int() | float() as number):
            return imported and not isinstance(number, bool)
    return False


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
            NEWS.write_text(json.dumps(self.seconds))


def pytest_configure(config: pytest.Config) -> None:
    """Measure, where this module was given as a plugin."""
    config.pluginmanager.register(Lines(config))


def measure() -> None:
    """Run the tests of which the lines are not known; DATA has the lines of all, KNOWN their durations."""
    known = json.loads(KNOWN.read_text()) if KNOWN.exists() and DATA.exists() else {"hashes": {}, "seconds": {}}
    tests = {str(path.relative_to(ROOT)) for pattern in TESTS for path in (ROOT / "tests").glob(pattern)}
    hashes = {file: hashlib.sha256((ROOT / file).read_bytes()).hexdigest() for file in (*pure_files(), *tests)}
    changed = {file for file in hashes if hashes[file] != known["hashes"].get(file)}
    data = coverage.CoverageData(str(DATA))
    data.read()
    old = [path for path in data.measured_files() if str(Path(path).resolve().relative_to(ROOT)) in changed]
    covering = {test for path in old for tests in data.contexts_by_lineno(path).values() for test in tests}
    wanted = sorted(tests & (changed | {test.split("::")[0] for test in covering}))
    seconds = {test: each for test, each in known["seconds"].items() if test.split("::")[0] in tests.difference(wanted)}
    if wanted:
        workers = (3 * (os.cpu_count() or 1) + 1) // 2
        command = [sys.executable, *f"-m pytest -p tests.mutate -q -n {workers} --alone=not".split(), *wanted]
        subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False)
        if old:  # else coverage refuses an empty file
            data.purge_files(old)  # not before: this call may be interrupted
        data.close()
        whole = coverage.Coverage(str(DATA), config_file=False)
        whole.load()
        whole.combine([str(path) for path in ROOT.glob(f"{DATA.name}.*")])
        whole.save()
        seconds |= json.loads(NEWS.read_text())
    KNOWN.write_text(json.dumps({"hashes": hashes, "seconds": seconds}))


class Covering:
    """Tests by the lines that they execute, from the run of `measure`."""

    def __init__(self) -> None:
        self._data = coverage.CoverageData(str(DATA))
        self._data.read()
        seconds = json.loads(KNOWN.read_text())["seconds"]
        self._seconds = {test: each for test, each in seconds.items() if each < MOST_SECONDS}
        self._breadth: dict[str, int] = {}
        self._lines: dict[str, dict[int, list[str]]] = {}
        for path in self._data.measured_files():
            file = str(Path(path).resolve().relative_to(ROOT))
            self._lines[file] = self._data.contexts_by_lineno(path)
            for test in {each for contexts in self._lines[file].values() for each in contexts}:
                self._breadth[test] = self._breadth.get(test, 0) + 1

    def rounds(self, mutant: Mutant) -> list[tuple[list[str], float]]:
        """Return the tests of both rounds, and the seconds they take."""
        lines = self._lines.get(mutant.file, {})
        found = set(lines.get(mutant.lines[0]) or lines.get(mutant.lines[1]) or ())
        if not mutant.lines[1] or found == {""}:  # executed by the import: a constant that the neighbours may use
            folder = mutant.file.rpartition("/")[0]
            near = [each for file, each in self._lines.items() if file.rpartition("/")[0] == folder]
            found = {test for lines in near for tests in lines.values() for test in tests}
            found |= {test for test in self._seconds if test.startswith(OF_CONSTANTS)}
        by_file: dict[str, list[str]] = {}
        for test in sorted(found & self._seconds.keys(), key=self._seconds.__getitem__):
            by_file.setdefault(test.split("::")[0], []).append(test)
        chosen, total = [], 0.0
        # the quickest of each file, the second of each, and so on: tests of one file see much the same
        for test in (each for row in zip_longest(*by_file.values()) for each in row if each):
            if total < MOST_SECONDS:
                total += self._seconds[test]
                chosen.append(test)

        def breadth(file: str) -> float:
            return sum(self._breadth.get(test, 0) for test in by_file[file]) / len(by_file[file])

        specific = sorted(by_file, key=breadth)[:SPECIFIC]
        first = [test for test in chosen if test.split("::")[0] in specific]
        rest = [test for test in chosen if test.split("::")[0] not in specific]
        return [(tests, sum(self._seconds[test] for test in tests)) for tests in (first, rest) if tests]


# ---- one mutant ------------------------------------------------------------------------------------------------------


class Quickly:
    """Plugin: Hypothesis need not look for the smallest example, nor keep one."""

    def pytest_sessionstart(self) -> None:
        phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
        hypothesis.settings.register_profile("mutant", deadline=None, database=None, max_examples=100, phases=phases)
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
    mutant.change()
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


def equivalents() -> set[tuple[str, str, str]]:
    """Return the names of the mutants that change nothing. Raises SystemExit if the source has no such mutant."""
    entries = tomllib.loads(EQUIVALENT.read_text())["mutant"]
    listed = {(each["file"], each["line"], each["change"]) for each in entries}
    if stale := listed.difference(mutant.name() for file in {file for file, *_ in listed} for mutant in mutants(file)):
        raise SystemExit("\n".join(f"stale in {EQUIVALENT.name}: {' | '.join(each)}" for each in stale))
    return listed


def main() -> int:
    """Sample mutants, test them, print the survivors and the share caught."""
    parser = argparse.ArgumentParser(prog="dev.py mutate", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("path", nargs="*", help="files or folders; default: all pure modules")
    parser.add_argument("--count", type=int, default=200, help="mutants, at random; default: 200")
    parser.add_argument("--seed", type=int, default=1, help="default: 1")
    given = parser.parse_args()
    wanted = tuple(path.rstrip("/") + "/" for path in given.path)
    files = [file for file in pure_files() if not wanted or f"{file}/".startswith(wanted)]
    every = [mutant for file in files for mutant in mutants(file)]
    known = equivalents()
    sample = random.Random(given.seed).sample(every, min(given.count, len(every)))
    sample = [mutant for mutant in sample if mutant.name() not in known]
    count = len(sample)
    measure()
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
                raise SystemExit(f"{': '.join(mutant.name())}: not tested, exit code {code}")
            if not code:
                survived += 1
                print(f"{mutant.file}:{mutant.node.lineno}: {mutant.text()}", end=" ")
                print(f"({sum(len(tests) for tests, _ in rounds)} tests)", flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    share = 100 * (count - survived) / max(1, count)
    print(f"caught {count - survived} of {count} mutants, {share:.1f} %, seed {given.seed},", end=" ")
    print(f"{len(every):,} possible in {len(files)} modules, {time.monotonic() - start:.0f} s")
    return 0 if share >= ASKED else 1


if __name__ == "__main__":
    sys.exit(main())
