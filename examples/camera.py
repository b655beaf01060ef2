"""Shared memory: full HD frames at 60 Hz to four processes; each frame is written once, and copied by none.

::

    python3 examples/camera.py

prints::

    60 frames of 6220800 bytes in shared memory
    4 processes saw whole frames only, none of them copied

Linux only. `--seconds 10` sends for longer; `--figures` adds what each process received, and the processor time.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time

from nngkit.protocols import Pub, Sub

RATE = 60  # frames a second
WATCHERS = 4
FRAME = 1920 * 1080 * 3  # bytes


def watch(address: str) -> None:
    """Look at each frame in place: its number is at both ends."""
    seen = torn = 0
    with Sub(dial=address, topics=b"", recv_max_size=FRAME, recv_timeout=10.0) as frames:
        while True:
            frame = frames.recv_view()
            first, last = bytes(frame[:8]), bytes(frame[-8:])
            if first == last == bytes(8):
                break
            seen += 1
            torn += first != last
        print(f"{seen} {torn} {time.process_time()}")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=1.0)
    options.add_argument("--figures", action="store_true")
    options.add_argument("--watch", metavar="ADDRESS", help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.watch:
        watch(chosen.watch)
        return 0
    with tempfile.TemporaryDirectory(prefix="camera") as folder, Pub(listen=f"shm://{folder}/frames") as camera:
        program = [sys.executable, os.path.abspath(__file__), "--watch", camera.address]
        watchers = [subprocess.Popen(program, stdout=subprocess.PIPE, text=True) for _ in range(WATCHERS)]
        camera.wait_for_peers(WATCHERS, timeout=30)
        count, begun, used = int(chosen.seconds * RATE), time.monotonic(), time.process_time()
        for number in range(1, count + 1):
            with camera.loan(FRAME) as buffer:
                buffer[:8] = buffer[-8:] = number.to_bytes(8, "big")  # a camera would fill all of it
            time.sleep(max(0.0, begun + number / RATE - time.monotonic()))
        used = time.process_time() - used
        with camera.loan(FRAME) as buffer:
            buffer[:8] = buffer[-8:] = bytes(8)
        answers = [watcher.communicate(timeout=30)[0].split() for watcher in watchers]
        stats = camera.stats
    right = all(len(answer) == 3 and int(answer[1]) == 0 for answer in answers)
    print(f"{stats.shared - 1} frames of {FRAME} bytes in shared memory")
    if right and not stats.copied:
        print(f"{len(answers)} processes saw whole frames only, none of them copied")
    if chosen.figures:
        for answer in answers:
            print(f"a process received {answer[0]} of {count} frames, {answer[1]} torn")
        print(f"{used / count * 1e6:.0f} us of processor a frame here, {stats.dropped} dropped")
    return 0 if right and stats.shared == count + 1 else 1


if __name__ == "__main__":
    sys.exit(main())
