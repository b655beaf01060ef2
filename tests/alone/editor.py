"""The extra `editor`: a text typed in a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios

EDIT = (sys.executable, "-m", "nngkit", "doc", "edit", "minutes", "--store", "docs.sqlite")
ours, theirs = pty.openpty()
termios.tcsetwinsize(ours, (12, 60))
with subprocess.Popen(
    EDIT, stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm-256color"}
) as process:
    try:
        os.close(theirs)
        drawn = b""
        while b"Ctrl-Q quit" not in drawn:  # the caller bounds the time
            drawn += os.read(ours, 65536)
        os.write(ours, "Grüße\x11".encode())  # Ctrl-Q
        while process.poll() is None:
            try:
                os.read(ours, 65536)
            except OSError:  # the end of the terminal
                break
        assert process.wait(20) == 0
    finally:
        process.kill()
cat = (sys.executable, "-m", "nngkit", "doc", "cat", "minutes", "--store", "docs.sqlite")
assert subprocess.run(cat, capture_output=True, text=True, timeout=30).stdout == "Grüße"
