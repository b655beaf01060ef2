"""A machine booted by systemd: in namespaces of its own, on a copy of this machine's files. It needs root.

::

    from tests.booted import Booted

    with Booted(folder) as machine:                       # /opt/nngkit is there, with the checkout's nngkit
        machine.run("cp", ..., "/etc/systemd/system/")
        machine.run("systemctl", "enable", "--now", "nngkit-discoverd")

What it writes is gone at the end; its processes see only each other, its network is a loopback. By itself it starts
nothing but the journal.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path
from time import monotonic
from typing import Any, Final

from tests.cli.commands import ROOT

LIMIT: Final = 60.0
"""Seconds for booting, and for a command."""
FORBIDDEN: Final = ("Operation not permitted", "Permission denied", "permission denied", "Read-only file system")
_JOURNAL: Final = ("systemd-journald.service", "systemd-journald.socket", "systemd-journald-dev-log.socket")
_TARGETS: Final = {
    "sysinit": f"Wants={_JOURNAL[0]}",
    "basic": "Requires=sysinit.target\nAfter=sysinit.target",
    "multi-user": "Requires=basic.target\nAfter=basic.target",
}


class Booted:
    """The machine. `folder` is an empty folder for what is needed to boot it.

    Entering it raises PermissionError where the kernel or a sandbox forbids it, RuntimeError if it fails otherwise.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._cgroup = _cgroups() / f"nngkit-{os.getpid()}"

    def __enter__(self) -> Booted:
        files, copy, told = (self._folder / name for name in ("files", "copy", "told"))
        _stage(files)
        copy.mkdir()
        try:
            self._cgroup.mkdir()
        except OSError as error:
            raise PermissionError(f"no machine booted: {error}") from error
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified, open(self._folder / "log", "wb") as log:
                notified.bind(str(told))
                notified.settimeout(0.5)
                script = Path(__file__).with_suffix(".sh")
                python = (sys.base_prefix, sysconfig.get_path("platlib"))
                argv = ["sh", str(script), str(self._cgroup), str(copy), str(files), *python, str(told)]
                self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=log, stdout=log)
                self._wait(notified)
            self.run("/opt/nngkit/bin/python", "-m", "compileall", "-q", "/opt/nngkit/lib")  # as pip does
        except BaseException:
            self.__exit__()
            raise
        return self

    def _first(self) -> int:
        """Return the process id, here, of the machine's first process."""
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text()
        return int(children or self._process.pid)

    def _wait(self, notified: socket.socket) -> None:
        assert self._process is not None
        limit = monotonic() + LIMIT
        heard = b""
        while b"READY=1" not in heard.split(b"\n"):
            with contextlib.suppress(TimeoutError):
                heard = notified.recv(4096)
            if self._process.poll() is not None or monotonic() > limit:
                told = (self._folder / "log").read_text()
                forbidden = any(each in told for each in FORBIDDEN)
                raise (PermissionError if forbidden else RuntimeError)(f"no machine booted: {told}")

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            if self._process.poll() is None:
                os.kill(self._first(), signal.SIGKILL)  # the kernel ends all others
            self._process.wait(LIMIT)  # returns once they have ended
        for folder in os.walk(self._cgroup, topdown=False):
            os.rmdir(folder[0])

    def run(self, *argv: str) -> str:
        """Run a program in the machine, as root, in a folder that has `deploy`; return its output.

        Raises AssertionError if it fails.
        """
        spaces = ("--cgroup", "--ipc", "--mount", "--net", "--pid", "--uts", "--wdns=/source")
        inside = ("nsenter", f"--target={self._first()}", *spaces)
        options: Any = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": LIMIT}
        done: subprocess.CompletedProcess[str] = subprocess.run([*inside, *argv], **options)
        if done.returncode:
            told = subprocess.run([*inside, "journalctl", "--lines=50"], **options).stdout
            raise AssertionError(f"{argv}: {done.stdout}{done.stderr}\n{told}")
        return done.stdout


def _cgroups() -> Path:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "cgroup2":
            return Path(place)
    raise PermissionError("no machine booted: no cgroups of version 2 are mounted")


def _stage(files: Path) -> None:
    """Write what the machine has beside this one's files."""
    units = files / "etc" / "systemd" / "system"
    units.mkdir(parents=True)
    for name in _JOURNAL:
        shutil.copy(Path("/lib/systemd/system", name), units)
    for name, lines in _TARGETS.items():
        (units / f"{name}.target").write_text(f"[Unit]\n{lines}\n")
    (files / "etc" / "machine-id").write_text(f"{os.urandom(16).hex()}\n")
    (files / "var" / "lib" / "private").mkdir(0o700, parents=True)  # of tmpfiles.d/systemd.conf
    shutil.copytree(ROOT / "deploy", files / "source" / "deploy")
    installed = files / "opt" / "nngkit"
    version = "python{}.{}".format(*sys.version_info[:2])
    packages = installed / "lib" / version / "site-packages"
    shutil.copytree(ROOT / "nngkit", packages / "nngkit")
    (packages / "others.pth").write_text("/opt/packages\n")
    (installed / "pyvenv.cfg").write_text("home = /opt/python/bin\n")
    (installed / "bin").mkdir()
    (installed / "bin" / "python").symlink_to(f"/opt/python/bin/{version}")
    command = installed / "bin" / "nngkit"
    command.write_text("#!/opt/nngkit/bin/python\nimport sys\nfrom nngkit.cli.main import main\nsys.exit(main())\n")
    command.chmod(0o755)
