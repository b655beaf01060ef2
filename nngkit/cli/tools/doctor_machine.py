"""This machine, for `nngkit doctor` without a URL: settings of daemons, the ports and names in them, and disks.

::

    findings = settings("discoverd=/etc/nngkit/discoverd.toml")     # what --check refuses, ports in use, unknown hosts
    findings = folder("/var/lib/nngkit")
    bound(5556)                                                     # {"127.0.0.1"}: hosts at which that port listens

Nothing is changed: a port is tried by binding it for a moment.
"""

from __future__ import annotations

import errno
import ipaddress
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from nngkit.cli.commands import DAEMONS
from nngkit.cli.diagnosis import Finding
from nngkit.cli.tools.doctor_findings import Disk, disk, loopback
from nngkit.errors import ConfigError

WAIT: Final = 30.0  # seconds that `--check` may take
LISTENS: Final = re.compile(r"(?:^|_)(listen|query|http|https|dns)$")  # settings that are places of its own
FOLDERS: Final = ("journal", "dir", "history", "store", "realm")
_URL: Final = re.compile(r"\w[\w+]*://[^\s\"',\]]+")
_LISTENING: Final = "0A"  # state of /proc/net/tcp


def settings(named: str) -> list[Finding]:
    """Examine the settings of a daemon, given as COMMAND=FILE. Raises ConfigError if it is no daemon's."""
    command, equals, path = named.partition("=")
    if not (equals and path and command in DAEMONS):
        raise ConfigError("--settings", f"{named!r} is not COMMAND=FILE; commands are {', '.join(DAEMONS)}", named)
    check = [sys.executable, "-m", "nngkit", *command.split(), "--config", path, "--check"]
    done = subprocess.run(check, check=False, capture_output=True, text=True, timeout=WAIT)
    if done.returncode:
        why = done.stderr.strip().rpartition("\n")[2].removeprefix(f"nngkit {command}: ")
        advice = f"`nngkit {command} --config {path}` does not start: correct the setting"
        return [Finding("problem", "settings", f"{path}: {why}", advice)]
    found = [Finding("ok", "settings", f"{path}: `nngkit {command}` accepts its settings")]
    for line in done.stdout.splitlines()[1:]:  # not every daemon has --json
        key, *values, source = re.split(r" {2,}", line.strip())
        value = "  ".join(values)
        if value == "-":
            continue
        if LISTENS.search(key):
            for host, port in _places(value):
                found += _taken(command, host, port, f"{key} ({source})")
        else:
            found += _unresolved(value, f"{key} ({source})")
        if key in FOLDERS and value.startswith('"'):
            found.append(folder(json.loads(value)))
    return found


def folder(path: str) -> Finding:
    """Examine the file system of a folder, or of the nearest one above that is there."""
    place = Path(path).absolute()
    while not place.is_dir() and place != place.parent:
        place = place.parent
    told = os.statvfs(place)
    free, size = told.f_bavail * told.f_frsize, told.f_blocks * told.f_frsize
    return disk(Disk(path, free, size, told.f_favail, told.f_files, os.access(place, os.W_OK)))


def bound(port: int) -> set[str]:
    """Return the hosts at which a TCP port of this machine listens, as Linux lists them; none on other systems."""
    return {host for host, number, _ in _listening() if number == port}


def only_loopback(host: str, port: int) -> bool:
    """Return True if `host` is an address of this machine, and the port listens on loopback alone."""
    hosts = bound(port)
    return bool(hosts) and all(map(loopback, hosts)) and not loopback(host) and _own(host)


def _own(host: str) -> bool:
    with suppress(OSError, ValueError):
        version = ipaddress.ip_address(host).version
        with socket.socket(socket.AF_INET6 if version == 6 else socket.AF_INET) as trial:
            trial.bind((host, 0))
            return True
    return False


def _places(value: str) -> Iterator[tuple[str, int]]:
    """Yield host and port of addresses, or of [HOST:]PORT, in the value of a setting.

    >>> list(_places('["tcp://0.0.0.0:5555", "ipc:///s"]')), list(_places('9100')), list(_places('"[::1]:80"'))
    ([('0.0.0.0', 5555)], [('127.0.0.1', 9100)], [('::1', 80)])
    """
    for text in _URL.findall(value) or [value.strip('"')]:
        found = re.fullmatch(r"(?:\w[\w+]*://)?(?:(?:\[([^\]]*)\]|([^:/]*)):)?(\d{1,5})(?:[/#].*)?", text)
        if found:
            yield found[1] or found[2] or "127.0.0.1", int(found[3])


def _taken(command: str, host: str, port: int, setting: str) -> list[Finding]:
    """Return whether the port is in use, and by which program."""
    if not 0 < port < 65536:
        return []
    try:
        (family, kind, _, _, place), *_ = socket.getaddrinfo(
            "0.0.0.0" if host == "*" else host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError:
        return _unresolved(f"tcp://{host}:{port}", setting)
    with socket.socket(family, kind) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(place)
            return []
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                what = f"{setting}: {host} is no address of this machine"
                return [Finding("problem", "not-own", what, "listen at an address that `ip addr` shows, or 0.0.0.0")]
            if error.errno != errno.EADDRINUSE:
                return [Finding("problem", "port", f"{setting}: {host}:{port}: {error.strerror}", None)]
    holder, line = _holder(port)
    if "nngkit" in line and set(command.split()) <= set(line.split()):
        return [Finding("ok", "port", f"{setting}: {port} is in use by {holder}, `{line}`")]
    what = f"{setting}: {port} is in use by {holder or 'another program'}" + (f", `{line}`" if line else "")
    return [Finding("problem", "port-taken", what, "end that program, or choose another port")]


def _unresolved(value: str, setting: str) -> list[Finding]:
    """Return the hosts of addresses in a value that have no address."""
    found = []
    for url in _URL.findall(value):
        host = url.partition("://")[2].partition("/")[0].rpartition(":")[0].strip("[]")
        if not url.startswith(("ipc", "abstract", "inproc", "unix")) and host not in ("", "*"):
            try:
                socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            except OSError as error:
                what = f"{setting}: there is no host {host!r} ({error.strerror})"
                found.append(Finding("problem", "unresolved", what, "check its spelling, and the DNS of this machine"))
    return found


def _listening() -> Iterator[tuple[str, int, str]]:
    """Yield host, port and inode of the TCP listeners of this machine, of its network namespace."""
    for name in ("tcp", "tcp6"):
        with suppress(OSError), open(f"/proc/net/{name}") as file:
            for line in list(file)[1:]:
                cells = line.split()
                if cells[3] == _LISTENING:
                    number, port = cells[1].split(":")
                    words = [bytes.fromhex(number[at : at + 8])[::-1] for at in range(0, len(number), 8)]
                    packed = b"".join(words) if sys.byteorder == "little" else bytes.fromhex(number)
                    yield str(ipaddress.ip_address(packed)), int(port, 16), cells[9]


def _holder(port: int) -> tuple[str, str]:
    """Return the process that listens at a port, and its command line; nothing if another user's is not shown."""
    inodes = {f"socket:[{inode}]" for _, number, inode in _listening() if number == port}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if any(os.readlink(each) in inodes for each in (process / "fd").iterdir()):
                line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                return f"process {process.name}", line[:120]
    return "", ""
