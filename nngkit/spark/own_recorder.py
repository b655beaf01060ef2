"""A stream's own recorder: `nngkit record` as a process on the driver's host, kept alive by a lease.

::

    recorder = OwnRecorder("checkpoint/nng-journal", RecorderOptions("pull", "tcp://127.0.0.1:7000", None, "pull", ""))
    recorder.ensure()      # starts it, or finds the one that a predecessor left running; raises if it cannot run
    recorder.release()      # and 10 seconds later it ends by itself

NNG cannot replay, so who receives has to outlive what Spark restarts. The recorder is therefore nobody's thread and
nobody's child to be killed with: it runs in a session of its own as long as a file, the lease, is touched, which a
thread here does. A driver that is killed and started again within the lease finds its recorder at work, and nothing was
missed; one that does not come back leaves nothing behind.

Opens no socket and imports no NNG: the recorder does, in its process.
"""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final

from nngkit.errors import Broken, ConfigError
from nngkit.spark.options import RecorderOptions

__all__ = ["LEASE", "OwnRecorder"]

log = logging.getLogger("nngkit.spark")

LEASE: Final = 10.0  # seconds that the recorder goes on when nobody touches the lease; `nngkit record` has the same
TOUCH: Final = 1.0  # seconds between two touches: nine may fail or come late
PATIENCE: Final = 20.0  # seconds for it to start: a predecessor may hold the partition for the lease's 10
PAUSE: Final = 0.05  # seconds between two looks at whether it has
READY: Final = b", from offset "  # in what it says when it has begun
USAGE: Final = 2  # the exit code of a command that was called wrongly: trying again is no use


class OwnRecorder:
    """One for one stream; its methods are called by one thread."""

    def __init__(self, journal: str, listening: RecorderOptions) -> None:
        if "://" in journal:
            raise ConfigError("path", "a recorder of the query's own writes to a folder, not to a URI", journal)
        self.journal = Path(journal)
        self.listening = listening
        # Beside the journal: what is not a journal's is none of its folder's business.
        self.lease = self.journal.with_name(self.journal.name + ".lease")
        self._words = self.journal.with_name(self.journal.name + ".recorder.log")
        self._child: subprocess.Popen[bytes] | None = None
        self._keeper: threading.Thread | None = None
        self._released = threading.Event()
        self._heard = self._said()

    def ensure(self) -> None:
        """Have it running, and its journal there. What it says while it runs, of a full disk say, is logged here.

        Raises Broken with the recorder's last words if it will not run, ConfigError if what it was told is wrong.
        """
        self.journal.parent.mkdir(parents=True, exist_ok=True)
        if self._keeper is None:
            self._touch()
            self._keeper = threading.Thread(target=self._keep, name="nngkit-lease", daemon=True)
            self._keeper.start()
        if self._running() and self._ready():
            self._pass_on()
            return
        deadline = time.monotonic() + PATIENCE
        while not (self._running() and self._ready()):
            if not self._running():
                code = None if self._child is None else self._child.poll()
                if code == USAGE:
                    raise ConfigError("recorder", self._last_words())
                if time.monotonic() > deadline:
                    raise Broken(f"the recorder of {self.journal} does not run: {self._last_words()}")
                if code is not None:
                    time.sleep(10 * PAUSE)  # whatever stands in its way may be going
                self._start()
            elif time.monotonic() > deadline:
                raise Broken(f"the recorder of {self.journal} has not begun after {PATIENCE:g} s: {self._last_words()}")
            time.sleep(PAUSE)
        self._heard = self._said()

    def _said(self) -> int:
        return self._words.stat().st_size if self._words.exists() else 0

    def _pass_on(self) -> None:
        """What it says while it runs is about its disk, and for whoever looks at what the driver says."""
        if self._said() <= self._heard:
            return
        with open(self._words, "rb") as said:
            said.seek(self._heard)
            new = said.read()
        self._heard += len(new)
        for line in new.decode(errors="replace").splitlines():
            if line:
                log.warning("%s", line)

    def release(self) -> None:
        """Touch the lease no more. Does not wait."""
        self._released.set()

    def _ready(self) -> bool:
        """Whether it receives: ours says so once its sockets are open; that of a predecessor has long done so."""
        if not (self.journal / "partition-00000" / "head").exists():
            return False
        return self._child is None or READY in self._words.read_bytes()

    def _running(self) -> bool:
        if self._child is not None and self._child.poll() is None:
            return True
        try:  # one that somebody before us has started
            pid = int(json.loads(self.lease.read_text())["pid"])
            command = Path("/proc", str(pid), "cmdline").read_bytes()
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return os.fsencode(self.lease) in command

    def _start(self) -> None:
        told = self.listening
        words = [f"{told.topic}={told.protocol}"]
        for name, value in (("listen", told.listen), ("dial", told.dial), ("subscribe", told.prefix)):
            words += [f"{name}={value}"] if value else []
        stream = shlex.join(words)
        command = [sys.executable, "-m", "nngkit", "record", str(self.journal), "--stream", stream]
        with open(self._words, "wb") as said:
            self._child = subprocess.Popen(
                [*command, "--lease", str(self.lease)],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,  # a Ctrl-C is for the driver
                close_fds=True,  # Spark's sockets among them
            )
        draft = self.lease.with_name(self.lease.name + ".tmp")
        draft.write_text(json.dumps({"pid": self._child.pid}))
        os.replace(draft, self.lease)

    def _keep(self) -> None:
        while not self._released.wait(TOUCH):
            try:
                self._touch()
            except OSError:  # the folder is gone; `ensure` will say so
                continue

    def _touch(self) -> None:
        try:
            os.utime(self.lease)
        except FileNotFoundError:
            self.lease.touch()

    def _last_words(self) -> str:
        try:
            lines = self._words.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return " / ".join(lines[-3:]) or "it said nothing"
