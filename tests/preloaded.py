"""Python programs as processes that start fast: `Popen` and `run` as in `subprocess`, by fork instead of exec.

Starting `nngkit doc` takes 0.4 s of CPU, nearly all of it to import trio, pycrdt and pyarrow, and the tests start
hundreds of commands. Here one process per test run imports these packages, and forks for each program. The program is a
real process and a child of the caller: pid, signals, exit code and descriptors are its own.

It loads NNG and never uses it: its children may. A program that needs another interpreter than the caller's (options,
PYTHON variables, another system than Linux) is started by exec, as usual.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import io
import json
import locale
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from inspect import signature
from typing import Any

from nngkit.errors import ConfigError

PRELOADED = (
    *("cryptography.x509", "curses", "pandas", "prometheus_client"),
    *("pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "pycrdt"),
    *("nngkit.calls.client", "nngkit.calls.server", "nngkit.cluster.endpoint", "nngkit.cluster.hosting"),
    *("nngkit.cli.config.starting", "nngkit.cli.doc.edit", "nngkit.cli.door", "nngkit.cli.main"),
    *("nngkit.cli.options", "nngkit.cli.streams.output"),
    *("nngkit.discovery.daemon", "nngkit.discovery.resolver", "nngkit.documents.peer"),
    *("nngkit.journal.recorder", "nngkit.journal.replaying", "nngkit.protocols", "nngkit.recording.documents"),
    *("nngkit.web.gateway",),
)
INTERPRETER = ("PYTHON", "COVERAGE", "LANG", "LC_", "LD_", "MALLOC_")  # variables that Python or C read at start
FREE = {"LC_ALL": "C.UTF-8"}  # as in the forking process
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: orphans among the descendants become children of the process that set it
HIGH = 200  # descriptors from here on are used by no program
MOST = 1 << 17  # bytes of a request: arguments and environment

# ---- the caller ------------------------------------------------------------------------------------------------------


class Server:
    """The forking process of this process, started when first used; it ends with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        self._prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

    def can_start(self, args: Any, env: dict[str, str] | None) -> bool:
        """Return True for `python -m nngkit ...` and `python FILE ...` with this interpreter's settings."""
        words = [str(argument) for argument in args[:3]]
        if self._prctl is None or words[0] != sys.executable or not words[1:]:
            return False
        if words[1:] != ["-m", "nngkit"] and not words[1].endswith(".py"):
            return False
        return _settings(os.environ if env is None else env) == _settings(os.environ)

    def fork(self, request: dict[str, Any], descriptors: list[int]) -> int:
        """Start a program as a child of this process and return its pid."""
        assert self._prctl is not None
        with self._lock:
            if self._connection is None:
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                with theirs:
                    command = [sys.executable, __file__, str(theirs.fileno())]
                    _servers.append(subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=-3))
                self._connection = ours
            self._prctl(SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._connection, [json.dumps(request).encode()], descriptors)
                return int(self._connection.recv(64))
            finally:
                self._prctl(SUBREAPER, 0, 0, 0, 0)


_server = Server()
_servers: list[subprocess.Popen[bytes]] = []  # kept: an abandoned Popen warns


def _settings(env: Any) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(INTERPRETER) and FREE.get(name) != value}


ARGUMENTS = signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]
PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")


class Popen(subprocess.Popen[Any]):
    """`subprocess.Popen` that forks a preloaded process if the program allows it."""

    def _execute_child(self, *given: Any) -> None:
        child = ARGUMENTS.bind(self, *given).arguments
        if child["shell"] or child["preexec_fn"] or not _server.can_start(child["args"], child["env"]):
            super()._execute_child(*given)  # type: ignore[misc]
            return
        ends = [child["p2cread"], child["c2pwrite"], child["errwrite"]]
        try:
            request = {
                "arguments": [os.fspath(argument) for argument in child["args"][1:]],
                "environment": dict(os.environ if child["env"] is None else child["env"]),
                "folder": os.fspath(child["cwd"] or os.getcwd()),
                "session": child["start_new_session"],
                "descriptors": list(child["pass_fds"]),
            }
            standard = [end if end >= 0 else number for number, end in enumerate(ends)]
            self.pid = _server.fork(request, [*standard, *child["pass_fds"]])
            self._child_created = True
        finally:
            self._close_pipe_fds(*(child[name] for name in PIPES))  # type: ignore[attr-defined]


def run(
    args: Sequence[Any], *, timeout: float, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run` with `Popen` of this module."""
    if options.pop("capture_output", False):
        options |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    text = options.pop("input", None)
    if text is not None:
        options["stdin"] = subprocess.PIPE
    with Popen(args, **options) as process:
        try:
            out, err = process.communicate(text, timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(args, process.returncode, out, err)


# ---- the forking process ---------------------------------------------------------------------------------------------


def serve(connection: socket.socket) -> dict[str, Any] | None:
    """Fork for each request, until the caller ends. Returns the request in the forked process, None in this one."""
    for name in PRELOADED:
        with contextlib.suppress(ModuleNotFoundError, ConfigError):  # an environment need not have all extras
            importlib.import_module(name)
    assert threading.active_count() == 1
    gc.collect()
    gc.freeze()  # no collection touches these pages, so processes share them
    while True:
        data, descriptors, _, _ = socket.recv_fds(connection, MOST, 32)
        if not data:
            return None
        reading, writing = os.pipe()
        if (between := os.fork()) == 0:
            # Its child becomes the caller's when it ends, as the caller is the subreaper now.
            middle = os.getpid()
            if (pid := os.fork()) != 0:
                os.write(writing, b"%d" % pid)
                os._exit(0)
            while os.getppid() == middle:
                time.sleep(0.0005)
            for each in (reading, writing, connection.fileno()):
                os.close(each)
            connection.detach()
            request: dict[str, Any] = json.loads(data)
            _take_over(request, descriptors)
            return request
        os.waitpid(between, 0)
        os.close(writing)
        pid_text = os.read(reading, 64)
        for each in (reading, *descriptors):
            os.close(each)
        connection.send(pid_text)


def _take_over(request: dict[str, Any], descriptors: list[int]) -> None:
    """Set up what exec and the interpreter's start would."""
    if request["session"]:
        os.setsid()
    high = [fcntl.fcntl(each, fcntl.F_DUPFD, HIGH) for each in descriptors]
    for each in descriptors:
        os.close(each)
    for number, each in zip((0, 1, 2, *request["descriptors"]), high, strict=True):
        os.dup2(each, number)
        os.close(each)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    locale.setlocale(locale.LC_CTYPE, "")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = sys.__stdin__ = _standard(0, sys.stdin)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _standard(1, sys.stdout)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _standard(2, sys.stderr)  # type: ignore[misc]


def _run(words: list[str]) -> None:
    """Run `-m nngkit ...` or `FILE ...` as the main module, as the interpreter would."""
    if words[0] == "-m":
        sys.argv, sys.path[0] = ["nngkit", *words[2:]], os.getcwd()
        runpy.run_module("nngkit", run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = words, os.path.dirname(os.path.abspath(words[0]))
        runpy.run_path(words[0], run_name="__main__")


def _standard(number: int, model: Any) -> io.TextIOWrapper:
    """Return a new file for this descriptor, as Python makes it at start."""
    encoding, errors = model.encoding, model.errors
    model.detach()
    file = open(number, "rb" if number == 0 else "wb", closefd=False)  # noqa: SIM115 - open as long as the process
    return io.TextIOWrapper(file, encoding, errors, "\n", line_buffering=number == 2 or os.isatty(number))


def _leave(code: int) -> None:
    """End as the interpreter does after a program that has not failed, without freeing what was imported for all.

    That took 75 ms of CPU, most of it to copy pages shared with the other processes.
    """
    threading._shutdown()  # type: ignore[attr-defined] # waits for the program's threads
    atexit._run_exitfuncs()
    gc.collect()
    with contextlib.suppress(Exception):  # the interpreter reports it
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    wanted = serve(socket.socket(fileno=int(sys.argv[1])))
    if wanted is not None:
        try:
            _run(wanted["arguments"])
        except SystemExit as end:
            if not isinstance(end.code, int | None):
                raise
            _leave(end.code or 0)
        _leave(0)
