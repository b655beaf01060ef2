"""Rules for every test: slow tests on request, missing programs, no skips in CI, nothing left running.

Nothing here hands out port numbers: a test listens on port 0 (``Pull(listen="tcp://127.0.0.1:0")``) and dials what
``address`` says. A number picked beforehand can be taken by another process before it is used.

``async def`` tests run under trio. asyncio is tested from plain functions, with ``asyncio.run`` inside.
"""

import contextlib
import gc
import importlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Generator
from pathlib import Path
from time import monotonic, sleep
from typing import Any, BinaryIO

import pytest
import pytest_timeout
from hypothesis import settings

settings.register_profile("slow", deadline=None)  # a busy machine takes longer for one example
settings.register_profile("quick", deadline=None, max_examples=40)

# A shell starts background jobs with SIGINT ignored, and children inherit that: tests of Ctrl-C would fail.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ["XDG_STATE_HOME"] = str(Path(tempfile.gettempdir(), f"nngkit-state-{os.getuid()}"))  # not the user's own

IN_CI = os.environ.get("NNGKIT_CI") == "1"
LIVE_ON = ("multiprocessing.resource_tracker", "tests/preloaded.py", "nngkit-guard")  # processes that end with this one
STAYING = ("Trio", "nngkit.blocking", *(f"nngkit-{one}" for one in ("alarm", "freeing", "reader", "resolver", "shm")))
GRACE = 2.0  # seconds a thread may take to end after the test that started it; on a loaded machine a join takes some

# ---- which tests run -------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")
    parser.addoption("--alone", choices=["only", "not"], help="run only the tests marked alone, or leave them out")
    parser.addoption("--times", type=int, default=1, metavar="N", help="run the selected tests N times in sequence")
    parser.addoption("--busy", type=int, default=0, metavar="N", help="run N processes that each keep a CPU busy")


def pytest_configure(config: pytest.Config) -> None:
    """Try fewer examples of Hypothesis without --slow."""
    settings.load_profile("slow" if config.getoption("--slow") else "quick")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect slow tests, unless --slow, -m or a test's own name asks for them; put long shares first."""
    if alone := config.getoption("--alone"):
        _deselect(config, items, lambda item: bool(item.get_closest_marker("alone")) != (alone == "only"))
    if not (config.getoption("--slow") or config.option.markexpr or any("::" in given for given in config.args)):
        _deselect(config, items, lambda item: item.get_closest_marker("slow") is not None)
    if "PYTEST_XDIST_WORKER" in os.environ:
        _longest_first(items)


def _deselect(config: pytest.Config, items: list[pytest.Item], out: Callable[[pytest.Item], bool]) -> None:
    left = [item for item in items if out(item)]
    if left:
        items[:] = [item for item in items if not out(item)]
        config.hook.pytest_deselected(items=left)


# ---- tests in parallel, with pytest-xdist ----------------------------------------------------------------------------


def _share(nodeid: str) -> str:
    """Return the name of the share that a test belongs to. One worker runs a share: a file, or all that needs Spark.

    Starting Spark takes 20 s of CPU, so its tests have one session.
    """
    file = nodeid.split("::", maxsplit=1)[0]
    return "tests/spark" if file.startswith("tests/spark/") else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out whole shares, in the order of the collection."""
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class Shares(LoadScopeScheduling):  # type: ignore[misc]
        """Shares whose rest goes to the other workers if one crashes: without those that have ended, and without the
        test that it crashed in. A worker that is given a share with nothing to run reports nothing, and gets no other.
        """

        _split_scope = staticmethod(_share)

        def _reschedule(self, node: Any) -> None:
            if node in self.registered_collections:  # else it just starts, as another one does that has
                super()._reschedule(node)

        def _assign_work_unit(self, node: Any) -> None:
            with contextlib.suppress(OSError):  # it has just crashed: remove_node will have all that it was given
                super()._assign_work_unit(node)

        def remove_node(self, node: Any) -> str | None:
            """Return the test that the worker crashed in, None if it had nothing to do."""
            unfinished = {
                share: [test for test, done in tests.items() if not done]
                for share, tests in self.assigned_work.pop(node).items()
            }
            crashed = next((tests.pop(0) for tests in unfinished.values() if tests), None)
            self.workqueue.update({share: dict.fromkeys(tests, False) for share, tests in unfinished.items() if tests})
            if crashed is not None:
                for other in list(self.assigned_work):
                    self._reschedule(other)
            return crashed

    config.option.loadscopereorder = False
    return Shares(config, log)


_written: dict[str, tuple[int, list[BinaryIO]]] = {}  # by worker: its process id, and the files that take its output


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_newgateway(gateway: Any) -> None:
    number = gateway.remote_exec("import os; channel.send(os.getpid())").receive()
    _written[gateway.id] = (number, [])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodeready(node: Any) -> None:
    """Open what pytest captures a worker's output in: a C library's last words are there when the process aborts."""
    number, files = _written[node.gateway.id]
    with contextlib.suppress(OSError):  # no Linux, or the worker has ended
        for link in Path(f"/proc/{number}/fd").iterdir():
            if os.readlink(link).endswith("(deleted)"):
                files.append(link.open("rb"))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object | None) -> None:
    """Print what a worker that crashed had written in its last test."""
    _, files = _written.pop(node.gateway.id)
    for file in files:
        file.seek(0)
        if error is not None and (text := file.read()):
            sys.stderr.write(f"\n{node.gateway.id} crashed; it had written:\n{text.decode(errors='replace')}\n")
        file.close()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Have each worker import another part of the tests first: what one has compiled, with its asserts, others load.

    Otherwise each would compile all of them at the same moment, in the first run of a clone.
    """
    if (told := getattr(session.config, "workerinput", None)) is None or session.config.args != ["tests"]:
        return
    modules = [".".join(file.with_suffix("").parts) for file in sorted(Path("tests").rglob("test_*.py"))]
    first = len(modules) * int(told["workerid"].removeprefix("gw")) // told["workercount"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in modules[first:] + modules[:first]:
            with contextlib.suppress(Exception, pytest.skip.Exception):  # collecting it tells
                importlib.import_module(name)


def _longest_first(items: list[pytest.Item]) -> None:
    """Order the shares so that no long one begins last: Spark, those with slow tests, the rest; upper folders first."""
    slow = {_share(item.nodeid) for item in items if item.get_closest_marker("slow")}

    def place(item: pytest.Item) -> tuple[bool, bool, int]:
        share = _share(item.nodeid)
        return share != "tests/spark", share not in slow, share.count("/")

    items.sort(key=place)


@pytest.hookimpl(trylast=True)  # after the tests' own parameters, which come first in its name
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Repeat all tests as --times says. The session scope orders them run by run, not test by test."""
    if (times := metafunc.config.getoption("--times")) > 1:
        metafunc.fixturenames.append("run")
        ids = [f"run {number} of {times}" for number in range(1, times + 1)]
        metafunc.parametrize("run", range(times), ids=ids, indirect=True, scope="session")


@pytest.fixture(scope="session")
def run(request: pytest.FixtureRequest) -> int:
    """Return the number of this repetition, from 0."""
    number: int = request.param
    return number


BUSY = """
import os, sys, threading
# Standard input is closed when the parent ends, even if it is killed.
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0))).start()
while True:
    pass
"""


@pytest.fixture(scope="session", autouse=True)
def load(request: pytest.FixtureRequest) -> Generator[None]:
    """Keep the busy processes of --busy running, from the first test to the last."""
    with contextlib.ExitStack() as stack:
        for _ in range(request.config.getoption("--busy")):
            process = subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE)
            stack.enter_context(process)
            stack.callback(process.kill)
        yield


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs_program"):
        program = marker.args[0]
        if shutil.which(program) is None:
            pytest.skip(f"the program {program} is not installed (Debian: {marker.kwargs.get('package', program)})")


@pytest.fixture(scope="module", autouse=True)
def earlier_objects() -> None:
    """Leave what stays, all tests and more with each file, out of later collections: each took up to 0.2 s."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()


# ---- a test's time is limited ----------------------------------------------------------------------------------------

_running: tuple[float, pytest.Item, Any] | None = None  # its deadline, and what pytest-timeout is to be told
_late: threading.Thread | None = None


@pytest.hookimpl
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Have one thread watch all tests: to start one for each and wait for its end takes 10 ms on a busy machine."""
    global _running, _late
    if settings.method != "thread":
        return None
    _running = monotonic() + settings.timeout, item, settings
    if _late is None:
        _late = threading.Thread(target=_watch, name="test time", daemon=True)
        _late.start()
    return True


@pytest.hookimpl
def pytest_timeout_cancel_timer() -> None:
    global _running
    _running = None


def _watch() -> None:
    while True:
        sleep(1)
        if (running := _running) is not None and running[0] < monotonic():
            pytest_timeout.timeout_timer(*running[1:])


# ---- in CI a skip is a failure ---------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True, tryfirst=True)  # outermost: after pytest has handled skips and xfail
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_skip(report)
    return report


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not (IN_CI and report.skipped):
        return
    reason = getattr(report, "wasxfail", None)
    if reason is None:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    else:
        del report.wasxfail  # otherwise the summary counts it as an xfail
    if "no machine booted: " in reason:  # forbidden by the kernel or a sandbox: no package mends that; -rs prints why
        return
    report.outcome = "failed"
    report.longrepr = f"not run, and NNGKIT_CI=1 allows no skips: {reason or 'no reason given'}"


# ---- threads and processes end with the test -------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def nothing_left_running() -> Generator[None]:
    """Fail a test that leaves a thread or a child process behind."""
    threads, children = set(threading.enumerate()), _children()
    yield
    mine = [thread for thread in threading.enumerate() if thread not in threads and not _belongs_to_a_library(thread)]
    for thread in mine:
        thread.join(GRACE)
    left = [f"thread {thread.name}" for thread in mine if thread.is_alive()]
    left += [f"process {pid}: {command}" for pid, command in _children().items() if pid not in children]
    assert not left, f"left running: {', '.join(left)}"


@pytest.fixture(autouse=True)
def nothing_refused() -> None:
    """Forget the refusals of earlier tests in this process, which errors of commands would name."""
    if (standing := sys.modules.get("nngkit.trust.standing")) is not None:
        for refusal in standing.standing():
            standing.forget(refusal.address)


def _belongs_to_a_library(thread: threading.Thread) -> bool:
    """Return True for threads that outlive a test on purpose.

    These are NNG's threads (once they have called into Python), trio's workers, nngkit's threads of the process, the
    portal's among them, and threads on which Spark's Java calls back.
    """
    target = getattr(getattr(thread, "_target", None), "__self__", thread)
    return (
        isinstance(thread, threading._DummyThread)
        or thread.name.startswith(STAYING)
        or type(target).__module__.startswith("py4j")
    )


def _children() -> dict[int, str]:
    """Return the live and unreaped children of this process by pid; empty without /proc."""
    found = {}
    for thread in os.listdir("/proc/self/task") if os.path.isdir("/proc/self/task") else ():
        for pid in _text(f"/proc/self/task/{thread}/children").split():  # empty: the thread has just ended
            command = _text(f"/proc/{pid}/cmdline").replace("\0", " ").strip()
            if not any(name in command for name in LIVE_ON):
                found[int(pid)] = command or "(ended, never waited for)"
    return found


def _text(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
