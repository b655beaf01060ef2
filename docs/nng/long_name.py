"""A socket name of more than 63 bytes ends the process.

pynng 0.9.0 (NNG 1.11.0). The option `socket-name`; NNG copies it into 64 bytes.
Expected: NNG_EINVAL.
Observed: the process ends by a signal.
"""

import os
import signal
import subprocess
import sys

import pynng

signal.alarm(30)  # ends a run that hangs

if len(sys.argv) > 1 and sys.argv[1] == "child":
    with pynng.Pair0(name="n" * int(sys.argv[2]), listen="tcp://127.0.0.1:0"):
        pass
    os._exit(0)

codes = {}
for length in (63, 64, 65, 100, 1000):
    child = subprocess.run([sys.executable, __file__, "child", str(length)], check=False, stderr=subprocess.DEVNULL)
    codes[length] = child.returncode
print("; ".join(f"{length} bytes: exit code {code}" for length, code in codes.items()))
sys.exit(0 if min(codes.values()) < 0 else 1)
