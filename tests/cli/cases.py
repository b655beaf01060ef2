"""Comparison of the stand-ins with the originals: command lines, payloads and format spellings.

``python -m tests.cli.cases`` runs the originals (Debian's nngcat 1.5.2 and nanocat 1.1.5) and writes their output to
recorded.json beside this file, so that tests can compare where they are not installed: each outcome once, with the
lines that have it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from nngkit.protocols import Req

RECORDED = Path(__file__).with_name("recorded.json")
WAIT = 20
SOMEWHERE = "--dial tcp://127.0.0.1:1 --async --recv-timeout 1"

# None of these needs a peer, and all terminate.
LINES = {
    "nngcat": f"""\

--pull
--pull --push
--pu --dial x
--bogus
-Y
--dial
--pull --dial tcp://127.0.0.1:1 --dial
--push --dial tcp://127.0.0.1:1
--version
-V
--ver
--verb --push
--push stray
stray --push --dial tcp://127.0.0.1:1 --data x
--push --dial tcp://127.0.0.1:1 --data a --data b
--push --dial tcp://127.0.0.1:1 --data a --file b
--push --dial tcp://127.0.0.1:1 --file /nonexistent
--push --file /tmp -L0
--sub --subscribe a --dial bogus://
--pull --subscribe a --dial tcp://127.0.0.1:1
--subscribe a -L0
--pull --hex --raw
--pull -A -A
--pull -A --format no
--pull --format bogus
--pull --format --dial x
--pull --format ''
--pull --format=
--pull -L abc
--pull -L ''
--pull -L 65536
--pull -L 65537
--pull -L 3000000000
--pull -L 0x10
--pull -l=1
--pull -C abc
--pull -C -1
--pull -C 3000000000
--count= --pull -L0
--pull -Z 3000000000
--pull -i 1.5
--pull -d 86401
--pull --send-timeout 100000
--pull --raw=1
--pull --raw:1
--pull --compat=1
--pull -vv
--pull -qv
--pull -vL 0
--pull --f raw
--pull --pai
--sub --su a
--pull --sur
--pull --lis
--pull --
--req --dial tcp://127.0.0.1:1
--bus --dial tcp://127.0.0.1:1
--push -Q -L0
--push -Q --data x --subscribe x -L0
--pub --format no --data x -L0
--req --format no -L0
--bus0 -L0 --interval 1
--pair0 -L0 --interval 1
--rep --data a --interval 1 -L0
--pull --interval 1 -L0
--pull --interval 1 --data x -L0
--pull --data x --dial tcp://127.0.0.1:1
--compat --async --pull --dial x
--compat --async
--compat --async --count 1 -L0
--compat --count=1
--compat --count=1 --pair0 -L0
--compat --count=1 --pair1 -L0
--compat --count=1 --subscribe x -L0
--compat --count 0 --pull -L0 --recv-timeout 1
--compat -L0
--compat --pair1 --dial tcp://127.0.0.1:1
--compat --pair1 --subscribe x -L0
--compat --pull --dial foo
--compat --pull --recv-timeout 1 --dial tcp://127.0.0.1:1
--pull {SOMEWHERE}
--pull {SOMEWHERE} -v
--pull {SOMEWHERE} - --bogus
--pull {SOMEWHERE} --zt-home /x
--pull --recv-timeout:1 --listen:tcp://127.0.0.1:0
--push {SOMEWHERE} --send-timeout 1 --data x
--surveyor {SOMEWHERE} --data x
--req -l 1 --async --data x --send-timeout 1
--rep -L 0 --recv-timeout 1
--rep -L 0 --recv-timeout 1 --data x
--respondent -L 0 --recv-timeout 1 --data x
--pair1 -L 0 --data x --send-timeout 1
--pub -L 0 --data x
--pub -L 0 --data x -C 2 -i 1
--pull --dial tcp://127.0.0.1:1
--pull --dial tcp://127.0.0.1:99999
--pull --dial nonsense
--pull --dial zt://x
--pull --dial ipc:///nonexistent/x
--pull --dial inproc://x
--pull --dial ws://127.0.0.1:1/
--pull --listen tcp://1.2.3.4:5
--pull --listen tcp://127.0.0.1:99999
--pull --listen nonsense
--pull --listen=
--pull --listen ipc:///nonexistent/x
--pull -X nonexistent/x
--pull -x nonexistent
--pull --cert a --cert b
--cert /dev/null --cert b
--cacert /dev/null --cacert b
--key /dev/null --key b
--pull --listen tls+tcp://127.0.0.1:0 --cert /nonexistent
--pull --listen tls+tcp://127.0.0.1:0 --cert /etc/passwd
--pull --listen tls+tcp://127.0.0.1:0 --key /nonexistent
--pull --dial tls+tcp://127.0.0.1:1 --cacert /nonexistent
--pull --dial tls+tcp://127.0.0.1:1 --cacert /etc/passwd
--pull --dial tls+tcp://127.0.0.1:1 --cert /etc/passwd
--pull --dial tcp://127.0.0.1:1 --cacert /etc/passwd
""",
    "nanocat": """\

--pull
--pull --push
--pull --pul
--push --pul
--pu --connect x
--pu=1
--bogus
--bogus=3
-Y
-vY
-v- --pull
---l1
--connect
--data
-l
-vl
--push --connect tcp://127.0.0.1:1
--verb
--verb --push
--push stray
--pull -l 1 -- x
--push --data a --data b
--push --data=a --da b
--push --da a -D b
--push -D a -D b
--push --data a --file b
--push -Da -Fb
--push --file /nonexistent
--pull -D x
--pull -F /etc/passwd
--pull --interval 2 -l1
--pull -i 1.5 -L 1
-i1 -d1
--pull --subscribe a
--subscribe x --push
--sub --subs x --push
--sub -i1 -d1 -Dx --subscribe
--pull --format bogus
--pull --format=bogus
--pull --format=
--raw --form bogus
--format
--raw=1
--quoted=
--in x
--in=x
--interval=x
-i=1
--push -D x -i 5x -L 1
--pull -l 1 --recv-timeout abc
--pull -l 1 --recv-timeout ''
--pull -l1 --recv-timeout=
--p
--s
--f
--re
--b
--con 1
--connect=
-l1
--pull -L abc
--pull -L 99999
--pull -L1 --connect:1
--pull -l ''
--pull --connect ''
--bind tcp:// --pull
--sub --connect bogus://
--pull --connect tcp://127.0.0.1:99999
--pull --connect tls+tcp://127.0.0.1:1
--pull --connect x --bind y
--pull --bind tcp://127.0.0.1
--pull --bind tcp://1.2.3.4:5
--pull --bind tcp://bogus.invalid:5
--pull --bind tcp://:99
--pull --bind nonsense
--pull --bind ipc:///nonexistent/x
--pull --socket-name xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx -l1
--pull -l1 --recv-timeout 0.1
--pull -l1 --recv-timeout 0.1 -
--pull --recv-timeout 0.1 -l1 --
--pull --recv-timeout 0x1 -l1
--pull --recv-timeout 1e-1 -l1
--pull --recv-timeout ' 0.1' -l1
--pull --recv-timeout 0 -l1
--fo=raw --pull -l1 --recv-timeout 0.1
--pull -A -l1 --recv-timeout 0.1 --hex --raw
-vAl1 --pull --recv-timeout 0.1
--bus --connect tcp://127.0.0.1:1 --recv-timeout 0.1
--pull --connect ipc:///nonexistent/x --recv-timeout 0.1
--pull --connect tcp://bogus.invalid:5 --recv-timeout 0.1
--pull --connect ws://127.0.0.1:1/ --recv-timeout 0.1
--pull --connect inproc://x --recv-timeout 0.1
--sub --subscribe=a --subs b -l1 --recv-timeout 0.1
--rep -l 1 --recv-timeout 0.1
--rep -l 1 --recv-timeout 0.1 -D x
--respondent -l1 --recv-timeout 0.1 -Dx
--req -l1 -Dx --recv-timeout 0.1
--surveyor -l1 -Dx
--pub -l1 -Dx
--bus -l1 -Dx --recv-timeout 0.1
--pair -l1 --recv-timeout 0.1
--pair -l1 -Dx --send-timeout 0.1
--push -Dx -l1 --send-timeout 0.1
""",
    "nn_push": """\

-h
--pu
-l1 --push -Dx
-l1 --pull
-l1 -Dx --send-timeout 0.1
--subscribe x
""",
}
COMMANDS = [(program, line) for program, lines in LINES.items() for line in lines.split("\n")[:-1]]

PAYLOADS = {
    "empty": b"",
    "ascii": b"hello world",
    "quotes": b'say "hi"',
    "control characters": b"\0\x01\a\b\t\n\v\f\r\x1b\x1f\x7f",
    "high bytes": b"\x80\xff\xfe",
    "UTF-8": "Zürich ☃".encode(),
    "all bytes": bytes(range(256)),
    "255": b"a" * 255,
    "256": b"b" * 256,
    "65535": b"c" * 65535,
    "65536": b"\xd0" * 65536,
    "percent signs": b"100% %s %n",
    "newlines": b"line\nline\n",
    "apostrophes": b"it's a \\",
}
SPELLINGS = [
    "",
    *(f"--format {form}" for form in ("no", "raw", "ascii", "quoted", "msgpack", "hex")),
    *(f"--{form}" for form in ("raw", "ascii", "quoted", "msgpack", "hex")),
    "-A",
    "-Q",
]


def printed(command: list[str], spelling: str) -> list[bytes]:
    """Return what `command` prints for each of PAYLOADS, as a rep: its reply comes after the output."""
    with tempfile.TemporaryDirectory(prefix="nngkit") as folder:
        address, output = f"ipc://{folder}/a", Path(folder, "output")
        arguments = ["--rep", "--data", "ok", "--bind", address, *spelling.split()]
        with output.open("wb") as out, subprocess.Popen([*command, *arguments], stdout=out) as process:
            try:
                with Req(dial=address, linger=0.0) as req:
                    parts, end = [], 0
                    for payload in PAYLOADS.values():
                        req.request(payload, timeout=WAIT)
                        parts.append(output.read_bytes()[end:])
                        end += len(parts[-1])
                return parts
            finally:
                process.kill()


def said(command: list[str], line: str, timeout: float = WAIT) -> dict[str, Any]:
    """Run `command` with the options of `line`; return its output and exit code."""
    done = subprocess.run(
        [*command, *shlex.split(line)], stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, cwd="/"
    )
    return {"stdout": done.stdout.decode(), "stderr": done.stderr.decode(), "code": done.returncode}


def digest(part: bytes) -> str:
    """Return the bytes, or their number and hash."""
    if len(part) <= 64:
        return base64.b64encode(part).decode()
    return f"{len(part)} {hashlib.sha256(part).hexdigest()}"


def grouped(outcomes: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each outcome once, with its lines."""
    groups: dict[str, dict[str, Any]] = {}
    for line, outcome in outcomes.items():
        groups.setdefault(json.dumps(outcome, sort_keys=True), {**outcome, "lines": []})["lines"].append(line)
    return list(groups.values())


def recorded(path: Path, part: str) -> dict[str, dict[str, Any]]:
    """Return the outcome of each line in a part of a record."""
    return {line: outcome for outcome in json.loads(path.read_text())[part] for line in outcome.pop("lines")}


def record() -> dict[str, Any]:
    """Run the originals and return their output."""
    with tempfile.TemporaryDirectory(prefix="nngkit") as folder:
        link = Path(folder, "nn_push")
        link.symlink_to("/usr/bin/nanocat")
        programs = {"nngcat": "nngcat", "nanocat": "nanocat", "nn_push": str(link)}
        found = {}
        for program, line in COMMANDS:
            ended = said([programs[program]], line)
            if program == "nn_push":  # prints its whole path
                ended = {
                    key: each.replace(str(link), "nn_push") if key != "code" else each for key, each in ended.items()
                }
            if "-h" in line.split():
                ended["stdout"] = ""  # help texts differ in wording
            found[f"{program} {line}"] = ended
    formats = {
        f"{program} {spelling}": {"payloads": [digest(part) for part in printed([program], spelling)]}
        for program in ("nngcat", "nanocat")
        for spelling in SPELLINGS
    }
    return {"commands": grouped(found), "formats": grouped(formats)}


if __name__ == "__main__":
    RECORDED.write_text(json.dumps(record(), indent=0, ensure_ascii=False) + "\n")
    sys.stdout.write(f"{RECORDED}\n")
