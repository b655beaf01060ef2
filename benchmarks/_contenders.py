"""Requirements of the contenders beyond the packages of .venv: the C program, nngkit before, NATS, certificates.

Each is created on first use. `missing` says why one cannot take part; the others run without it.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
RESULTS = Path(os.environ.get("NNGKIT_BENCH_RESULTS", ROOT / "build" / "bench"))  # set by tests
BOUND = 120.0  # seconds after which a measurement is given up

BEFORE = "7885009"  # the last commit on NNG's protocol sockets
BEFORE_FOLDER = ROOT / "build" / "before"


@functools.cache
def floor() -> Path | None:
    """Return the C program, built if necessary; None without a compiler or NNG's headers."""
    source, program = HERE / "_floor.c", RESULTS / "floor"
    compiler = shutil.which("cc")
    if compiler is None or not Path("/usr/include/nng/nng.h").exists():
        return None
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        RESULTS.mkdir(parents=True, exist_ok=True)
        command = [compiler, "-O2", "-pthread", "-o", str(program), str(source), "-lnng"]
        subprocess.run(command, check=True, timeout=BOUND)
    return program


@functools.cache
def clock() -> Path | None:
    """Return the library of a jumping clock, built if necessary; None without a compiler."""
    source, library = HERE / "_fault_clock.c", RESULTS / "fault_clock.so"
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    if not library.exists() or library.stat().st_mtime < source.stat().st_mtime:
        RESULTS.mkdir(parents=True, exist_ok=True)
        scratch = library.with_suffix(f".{os.getpid()}")  # renamed: another process may load it meanwhile
        command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(scratch), str(source), "-ldl"]
        subprocess.run(command, check=True, timeout=BOUND)
        scratch.rename(library)
    return library


def commit(name: str) -> str:
    """Return the commit of a branch, tag or short name; exit if this clone has none of that name."""
    command = ["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}"]
    found = subprocess.run(command, check=False, capture_output=True, text=True, timeout=BOUND).stdout.strip()
    if not found:
        raise SystemExit(f"no commit {name} in this clone")
    return found


@functools.cache
def exported() -> Path | None:
    """Return a folder with nngkit as of `BEFORE`, for PYTHONPATH; None if the clone does not have that commit."""
    here = BEFORE_FOLDER / BEFORE
    if not here.exists():
        command = ["git", "-C", str(ROOT), "archive", BEFORE, "nngkit", "protocols"]
        try:
            archive = subprocess.run(command, capture_output=True, check=True, timeout=BOUND).stdout
        except (OSError, subprocess.CalledProcessError):
            return None
        BEFORE_FOLDER.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.mkdtemp(dir=BEFORE_FOLDER)
        subprocess.run(["tar", "-x", "-C", scratch], input=archive, check=True, timeout=BOUND)
        os.rename(scratch, here)  # atomic
    return here


def environment_before() -> dict[str, str]:
    """Return the environment of a process that imports it. PYTHONPATH precedes this checkout's editable install."""
    folder = str(exported())
    return os.environ | {"PYTHONPATH": folder, "NNGKIT_BENCH_BEFORE": folder}


def machine() -> str:
    """Return the measured machine: its cores, their model and its kernel."""
    told = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(": ")[2] for line in told if line.startswith("model name")), platform.machine())
    return f"{len(os.sched_getaffinity(0))} cores of {model}, Linux {platform.release()}"


def _nats_server() -> str | None:
    # Debian installs it outside a normal user's PATH
    return shutil.which("nats-server", path=os.environ.get("PATH", os.defpath) + ":/usr/sbin")


@contextmanager
def nats(directory: str) -> Iterator[tuple[str, int]]:
    """Run a NATS server on a free port; yield its URL and process id."""
    program = _nats_server()
    assert program is not None
    command = [program, "--addr", "127.0.0.1", "--port", "-1", "--ports_file_dir", directory, "--log", os.devnull]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield _nats_url(process, Path(directory)), process.pid
    finally:
        process.kill()
        process.wait(BOUND)


def _nats_url(process: subprocess.Popen[bytes], directory: Path) -> str:
    end = time.monotonic() + BOUND
    while time.monotonic() < end:
        if process.poll() is not None:
            raise SystemExit(f"{process.args}: ended early with exit code {process.returncode}")
        for path in directory.glob("*.ports"):
            try:
                url: str = json.loads(path.read_text())["nats"][0]
            except ValueError:  # not written yet
                continue
            return url
        time.sleep(0.005)
    raise SystemExit("nats-server does not report its address")


def certificates(directory: str) -> dict[str, str]:
    """Create certificates; return the paths of a CA's certificate, and of a key and a certificate for localhost."""
    import trustme

    paths = {name: str(Path(directory, f"{name}.pem")) for name in ("ca", "cert", "key")}
    ca = trustme.CA()
    localhost = ca.issue_cert("localhost", "127.0.0.1")
    ca.cert_pem.write_to_path(paths["ca"])
    localhost.private_key_pem.write_to_path(paths["key"])
    for index, blob in enumerate(localhost.cert_chain_pems):
        blob.write_to_path(paths["cert"], append=index > 0)
    return paths


def passes(directory: str) -> dict[str, list[str]]:
    """Create a realm; return the paths of passes for a listener and a dialer."""
    from nngkit.trust import Realm, write

    farm, names = Realm.new("farm"), ("hub", "render.w1")
    for name in names:
        write(Path(directory, f"{name}.pass"), farm.issue(name))
    return {"passes": [str(Path(directory, f"{name}.pass")) for name in names]}


@functools.cache
def _missing(module: str) -> str | None:
    if module == "_floor" and floor() is None:
        return "no C compiler or no nng.h (Debian: libnng-dev): the ways in C are left out"
    if module == "_nats" and _nats_server() is None:
        return "no nats-server (Debian: nats-server): NATS is left out"
    if module == "_status_page" and not (shutil.which("chromium") and shutil.which("chromedriver")):
        return "no chromium or no chromedriver (Debian: chromium-driver): the status page is left out"
    packages = {"_iceoryx2": "iceoryx2", "_nats": "nats", "_python_nng": "nng", "_zenoh": "zenoh", "_zmq": "zmq"}
    needed = packages.get(module)
    if needed is not None and importlib.util.find_spec(needed) is None:
        return f"no Python package {needed}, which is in the dev group: it is left out"
    return None


def missing(*functions: str, before: bool) -> str | None:
    """Return why a way of these functions cannot be measured here; None if it can."""
    if before and exported() is None:
        return f"commit {BEFORE} is not in this clone, or there is no git: the earlier nngkit is left out"
    reasons = (_missing(each.partition(":")[0]) for each in functions if each)
    return next(filter(None, reasons), None)
