"""A stream's own recorder: `nngkit record` as a process on the driver's host, kept alive by a lease.

::

    recorder = OwnRecorder("checkpoint/nng-journal", RecorderOptions("pull", "tcp://127.0.0.1:7000", None, "pull", ""))
    recorder.ensure()      # start it, or find the one of a previous driver; raises if it cannot run
    recorder.release()     # it exits 10 seconds later

NNG cannot replay, so the recorder must outlive the processes that Spark restarts. It is therefore neither a thread of
the driver nor a child killed with it: it runs in a session of its own as long as a thread of the driver touches a file,
the lease. A driver that is killed and restarted within the lease finds its recorder running and loses no message; if
the driver does not return, the recorder exits.

Opens no socket and does not import NNG: the recorder does, in its process.
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
from nngkit.file_modes import make_folder
from nngkit.journal.files import shown
from nngkit.spark.reading.options import RecorderOptions

log = logging.getLogger("nngkit.spark")

LEASE: Final = 10.0  # seconds until the recorder exits without a touch; the same in `nngkit record`
TOUCH: Final = 1.0  # seconds between touches: nine may fail or be late
START_TIMEOUT: Final = 20.0  # seconds: a previous recorder may hold the partition for the lease's 10
PAUSE: Final = 0.05  # seconds between checks for readiness
READY: Final = b", from offset "  # in the line that `nngkit record` prints when its sockets are open
USAGE: Final = 2  # exit code for invalid arguments: retrying is useless


class OwnRecorder:
    """Recorder of one stream; call its methods from one thread."""

    def __init__(self, journal: str, listening: RecorderOptions, spool: str | None = None) -> None:
        if "://" in journal and spool is None:
            why = "the journal is shared storage: name a local folder for the logs of the query's own recorder"
            raise ConfigError("spool", why, shown(journal))
        self.journal = journal
        self.listening = listening
        self._spool = spool
        self._logs = Path(spool or journal)
        # Beside the logs, as their folder holds only files of the journal.
        self.lease = self._logs.with_name(self._logs.name + ".lease")
        self._output = self._logs.with_name(self._logs.name + ".recorder.log")
        self._child: subprocess.Popen[bytes] | None = None
        self._toucher: threading.Thread | None = None
        self._released = threading.Event()
        self._logged = self._output_size()

    def ensure(self) -> None:
        """Ensure that the recorder runs and that its journal exists. Log its new output, such as a full disk.

        Tries for START_TIMEOUT seconds; logs at once why it does not start, such as the process that has the partition.
        Raises Broken with the recorder's last lines if it cannot run, ConfigError if its options are invalid.
        """
        make_folder(self._logs.parent)
        if self._toucher is None:
            self._touch()
            self._toucher = threading.Thread(target=self._touch_always, name="nngkit-lease", daemon=True)
            self._toucher.start()
        if self._running() and self._ready():
            self._log_output()
            return
        deadline, said = time.monotonic() + START_TIMEOUT, ""
        while not (self._running() and self._ready()):
            if not self._running():
                code = None if self._child is None else self._child.poll()
                if code == USAGE:
                    raise ConfigError("recorder", self._last_lines())
                if time.monotonic() > deadline:
                    raise Broken(f"the recorder of {shown(self.journal)} does not run: {self._last_lines()}")
                if code is not None:
                    if (lines := self._last_lines()) != said:
                        said = lines
                        wait = f"it is tried for {START_TIMEOUT:g} s"
                        log.warning("the recorder of %s does not start, %s: %s", shown(self.journal), wait, said)
                    time.sleep(10 * PAUSE)  # the obstacle may be temporary
                self._start()
            elif time.monotonic() > deadline:
                late = f"is not ready after {START_TIMEOUT:g} s"
                raise Broken(f"the recorder of {shown(self.journal)} {late}: {said or self._last_lines()}")
            time.sleep(PAUSE)
        self._logged = self._output_size()

    def _output_size(self) -> int:
        return self._output.stat().st_size if self._output.exists() else 0

    def _log_output(self) -> None:
        """Log the recorder's new output, which reports problems with its disk, in the driver's log."""
        if self._output_size() <= self._logged:
            return
        with open(self._output, "rb") as output:
            output.seek(self._logged)
            new = output.read()
        self._logged += len(new)
        for line in new.decode(errors="replace").splitlines():
            if line:
                log.warning("%s", line)

    def release(self) -> None:
        """Stop touching the lease. Does not wait."""
        self._released.set()

    def _ready(self) -> bool:
        """Return True if the recorder receives: its sockets are open. A found one has been ready before."""
        if not (self._logs / "partition-00000" / "head").exists():
            return False
        return self._child is None or READY in self._output.read_bytes()

    def _running(self) -> bool:
        if self._child is not None and self._child.poll() is None:
            return True
        try:  # started by a previous driver
            pid = int(json.loads(self.lease.read_text())["pid"])
            command = Path("/proc", str(pid), "cmdline").read_bytes()
        except (OSError, ValueError, KeyError, TypeError):
            return False
        return os.fsencode(self.lease) in command

    def _start(self) -> None:
        options = self.listening
        words = [f"{options.topic}={options.protocol}"]
        for name, value in (("listen", options.listen), ("dial", options.dial), ("subscribe", options.prefix)):
            words += [f"{name}={value}"] if value else []
        stream = shlex.join(words)
        command = [sys.executable, "-m", "nngkit", "record", self.journal, "--stream", stream]
        command += ["--spool", self._spool] if self._spool is not None else []
        with open(self._output, "wb") as output:
            self._child = subprocess.Popen(
                [*command, "--lease", str(self.lease)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C is for the driver
                close_fds=True,  # such as Spark's sockets
            )
        draft = self.lease.with_name(self.lease.name + ".tmp")
        draft.write_text(json.dumps({"pid": self._child.pid}))
        os.replace(draft, self.lease)

    def _touch_always(self) -> None:
        while not self._released.wait(TOUCH):
            try:
                self._touch()
            except OSError:  # the folder is gone; `ensure` reports it
                continue

    def _touch(self) -> None:
        try:
            os.utime(self.lease)
        except FileNotFoundError:
            self.lease.touch()

    def _last_lines(self) -> str:
        try:
            lines = self._output.read_text(errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return " / ".join(lines[-3:]) or "no output"
