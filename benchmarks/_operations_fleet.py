"""The processes of `operations.py`: daemons, services, a cluster, journal, documents, gateway, Prometheus.

::

    with Fleet(folder, divide=1) as fleet:          # all of them are killed at the end, by their process groups
        fleet.ready(60.0)                           # all listen, and Prometheus has scraped each
        fleet["shout-2"].kill(); fleet["shout-2"].start()
        fleet.firing()                              # labels of the alerts that fire, as Prometheus's API has them

A process with ``http`` has the same port after a restart, so that its `instance` stays. All lines are those of
deploy/processes/run.sh, or such as an operator writes; the rules are deploy/prometheus/nngkit.rules.yml.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from _fault_kinds import SPACE, can_mount
from _restarted import ports

from _contenders import HERE

RULES: Final = HERE.parent / "deploy" / "prometheus" / "nngkit.rules.yml"
SCRAPE: Final = 5.0  # seconds, as in deploy/processes/prometheus.yml
BOUND: Final = 15.0  # seconds for a process to end
PORTS: Final = 64
FEW: Final = 128  # descriptors of the process that is to run out of them
SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
SHOUT: Final = "sed -u 's/.*/\\U&/'"


def divided(rules: str, by: float) -> str:
    """Return rules with the durations of their `for` and of their ranges divided, a second at least."""

    def shorter(found: re.Match[str]) -> str:
        before, number, unit, after = found.groups()
        return f"{before}{max(1, round(int(number) * SECONDS[unit] / by))}s{after}"

    return re.sub(r"(for: |\[)(\d+)([smhd])(\]|:|$)", shorter, rules, flags=re.MULTILINE)


@dataclass
class Member:
    """A process of the fleet. `job`: of Prometheus, if it has `http`. `descriptors`: its limit."""

    name: str
    words: list[str]
    log: Path
    http: int | None = None
    job: str = "nngkit"
    descriptors: int | None = None
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def instance(self) -> str:
        return f"127.0.0.1:{self.http}"

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        limit = [] if self.descriptors is None else ["prlimit", f"--nofile={self.descriptors}"]
        words = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            *limit,
            *self.words,
        ]  # each replaces itself: the pid is the program's
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=os.environ | self.environment,
                start_new_session=True,
            )

    def send(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def end(self, number: int = signal.SIGKILL) -> None:
        """Send a signal, and wait for its end; after SIGTERM some kill what is still there."""
        if self.process is None:
            return
        self.send(number)
        try:
            self.process.wait(BOUND)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGCONT)
        self.send(signal.SIGKILL)
        self.process.wait(BOUND)

    def usage(self) -> tuple[float, int] | None:
        """Return its anonymous resident memory in MiB and its open descriptors; None if it is gone.

        What it maps of files is left out: its share changes whenever another process of the same program ends.
        """
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
            descriptors = len(os.listdir(f"/proc/{self.pid}/fd"))
        except (FileNotFoundError, ProcessLookupError):
            return None
        found = re.search(r"^RssAnon:\s+(\d+)", status, re.MULTILINE)
        return (int(found[1]) / 1024, descriptors) if found else None  # a zombie has none


class Fleet:
    """All processes. ``divide``: the rules' durations by this, for a test; 1 for the shipped rules."""

    def __init__(self, folder: Path, *, divide: float = 1.0, rate: float = 20.0) -> None:
        self.folder, self._divide = folder, divide
        self.members: dict[str, Member] = {}
        self.disk = folder / "disk"
        self.passes = folder / "passes"
        self._free = iter(ports(PORTS))
        self._surveys, self._queries = ([next(self._free) for _ in range(2)] for _ in range(2))
        self.scrape = min(SCRAPE, max(1.0, SCRAPE / divide))
        self._prometheus = self._port()
        self._lay_out(rate)

    # ---- what runs

    def _port(self) -> int:
        return int(next(self._free).rpartition(":")[2])

    def add(
        self,
        name: str,
        *words: str,
        http: bool = True,
        job: str = "nngkit",
        descriptors: int | None = None,
        discovery: list[str] | None = None,
    ) -> Member:
        """Add a process of `nngkit WORDS`; it is not started."""
        port = self._port() if http else None
        line = [sys.executable, "-m", "nngkit", *words, *(["--http", str(port)] if http else [])]
        environment = {
            "NNGKIT_DISCOVERY": " ".join(discovery or self._surveys),
            "NNGKIT_QUERY": "" if words[0] == "discoverd" else " ".join(self._queries),
        }
        made = Member(name, line, self.folder / f"{name}.log", port, job, descriptors, environment)
        self.members[name] = made
        return made

    def mode(self, service: str, script: str) -> None:
        """Have a service's program do this from the next call on."""
        scratch = self.folder / f"{service}.new"
        scratch.write_text(script)
        scratch.rename(self.folder / f"{service}.sh")

    def _lay_out(self, rate: float) -> None:
        for number, (survey, query) in enumerate(zip(self._surveys, self._queries, strict=True), 1):
            self.add(f"discovery-{number}", "discoverd", "--listen", survey, "--query", query, "--no-history")
        for number in (1, 2, 3):
            self.add(f"shout-{number}", "serve", "shout", "--lines", "--exec", SHOUT)
        for service, more in {"orders": [], "prices": [], "prints": ["--concurrency", "1"]}.items():
            self.mode(service, "cat")
            script = f"sh {self.folder / service}.sh"
            self.add(service, "serve", service, "--codec", "json", *more, "--exec", script)
        self.add("stamps", "serve", "stamps", "--lines", "--exec", SHOUT)
        self.add("split", "serve", "split", "--lines", "--exec", SHOUT)
        # known to one of the daemons alone: started by a fault
        self.add("split-half", "serve", "split", "--lines", "--exec", SHOUT, discovery=self._surveys[:1])

        voters = {f"voter-{number}": next(self._free) for number in (1, 2, 3)}
        told = [word for name, url in voters.items() for word in ("--voter", f"{name}={url}")]
        for name, url in voters.items():
            self.add(name, "host", "farm", "--id", name, "--listen", url, *told, job="nngkit-farm")
        dials = [word for url in voters.values() for word in ("--dial", url)]
        for number in (1, 2):
            work = ("--kind", "echo", "--lines", "--exec", SHOUT)
            self.add(f"worker-{number}", "join", "farm", *dials, *work, http=False)
        shop = next(self._free)
        self.add("shop", "host", "shop", "--listen", shop, job="nngkit-shop")
        self.add("shop-worker", "join", "shop", "--dial", shop, "--kind", "bad", "--exec", "exit 1", http=False)

        records, small, serves = (next(self._free) for _ in range(3))
        journal, state = self.folder / "journal", self.folder / "positions"
        keep = ("--segment-size", "100000", "--keep-size", "20000000")  # sealed and merged from the first minutes on
        self.add("recorder", "record", str(journal), "--stream", f"events=pull listen={records}", *keep)
        self.add("small", "record", str(self.disk / "journal"), "--stream", f"events=pull listen={small}",
                 "--segment-size", "100000", "--keep-size", "8000000")  # fmt: skip
        self.add(
            "consumers", "consume", "--serve", "--journal", str(journal), "--state", str(state), "--listen", serves
        )
        self.add("billing", "consume", "billing", "--server", serves, "--json", http=False)

        front, back, pushes, pulls = (next(self._free) for _ in range(4))
        self.add("forwarder", "device", "forwarder", "--front-listen", front, "--back-listen", back)
        few = self.add("streamer", "device", "streamer", "--front-listen", pushes, "--back-listen", pulls)
        few.descriptors = FEW
        secure = [next(self._free).replace("tcp:", "tls+tcp:") for _ in range(2)]
        self.add("secure", "device", "queue", "--front-listen", secure[0], "--back-listen", secure[1],
                 "--trust", str(self.passes / "relay.pass"))  # fmt: skip

        documents = next(self._free)
        self.add("documents", "doc", "serve", str(self.folder / "documents"), "--listen", documents, "--no-token")
        gateway = self._port()
        self.add("gateway", "gateway", "--http", str(gateway), http=False)
        self.back, self.pushes, self.serves, self.shop = back, pushes, serves, shop
        self.task = {
            "folder": str(self.folder),
            "daemons": self._queries,
            "cluster": list(voters.values()),
            "records": [records, small],
            "front": front,
            "back": back,
            "documents": documents,
            "gateway": f"http://127.0.0.1:{gateway}",
            "rate": rate,
        }
        words = [sys.executable, str(HERE / "_child.py"), "_operations_load:run", json.dumps(self.task)]
        self.members["load"] = Member("load", words, self.folder / "load.log")
        self.members["prometheus"] = self._configured()

    def _configured(self) -> Member:
        rules, configuration = self.folder / "rules.yml", self.folder / "prometheus.yml"
        rules.write_text(RULES.read_text() if self._divide == 1 else divided(RULES.read_text(), self._divide))
        jobs: dict[str, list[str]] = {}
        for member in self.members.values():
            if member.http is not None and member.name != "split-half":
                jobs.setdefault(member.job, []).append(member.instance)
        every = f"{self.scrape:g}s"
        told = {  # JSON is YAML
            "global": {"scrape_interval": every, "evaluation_interval": every, "scrape_timeout": every},
            "rule_files": [str(rules)],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": targets}]} for job, targets in jobs.items()
            ],
        }
        configuration.write_text(json.dumps(told))
        words = ["prometheus", "--config.file", str(configuration), "--storage.tsdb.path", str(self.folder / "tsdb"),
                 "--web.listen-address", f"127.0.0.1:{self._prometheus}", "--log.level", "warn"]  # fmt: skip
        return Member("prometheus", words, self.folder / "prometheus.log")

    def sign(self, days: int) -> None:
        """Make the pass of `secure` anew."""
        self._run("trust", "pass", "relay", "--realm", str(self.passes), "--days", str(days),
                  "-o", str(self.passes / "relay.pass"))  # fmt: skip

    def _run(self, *words: str) -> None:
        subprocess.run([sys.executable, "-m", "nngkit", *words], check=True, timeout=60, stdout=subprocess.DEVNULL)

    def __getitem__(self, name: str) -> Member:
        return self.members[name]

    def __enter__(self) -> Self:
        self.disk.mkdir()
        if can_mount():
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SPACE}", "tmpfs", str(self.disk)], check=True)
        self.passes.mkdir()
        self._run("trust", "new", "farm", "--realm", str(self.passes))
        self.sign(30)
        try:
            self["recorder"].start()
            self._until((self.folder / "journal" / "journal.json").exists)
            for member in self.members.values():
                if member.name not in ("recorder", "split-half"):
                    member.start()
        except BaseException:
            self._end()
            raise
        return self

    @staticmethod
    def _until(true: Callable[[], bool]) -> None:
        end = time.monotonic() + BOUND
        while not true() and time.monotonic() < end:
            time.sleep(0.05)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        for member in self.members.values():
            if member.process is not None:
                member.send(signal.SIGKILL)
        for member in self.members.values():
            member.end()
        if can_mount():
            subprocess.run(["umount", "--lazy", str(self.disk)], check=False)

    @staticmethod
    def address(url: str) -> tuple[str, int]:
        """Return host and port of an address."""
        host, port = url.partition("://")[2].rsplit(":", 1)
        return host, int(port)

    def ended(self) -> dict[str, int]:
        """Return the exit codes of processes that have ended by themselves."""
        return {
            name: member.process.returncode
            for name, member in self.members.items()
            if member.process is not None and member.process.poll() is not None
        }

    # ---- what Prometheus says

    def api(self, path: str) -> Any:
        """Return the data of Prometheus's answer."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._prometheus}/api/v1/{path}", timeout=10) as reply:
            return json.load(reply)["data"]

    def alerts(self) -> list[dict[str, Any]]:
        """Return the alerts that are pending or firing."""
        found: list[dict[str, Any]] = self.api("alerts")["alerts"]
        return found

    def firing(self) -> list[dict[str, str]]:
        """Return the labels of the alerts that fire."""
        return [each["labels"] for each in self.alerts() if each["state"] == "firing"]

    def done(self) -> dict[str, int]:
        """Return what the load has counted so far."""
        try:
            counts: dict[str, int] = json.loads((self.folder / "load.json").read_text())
        except FileNotFoundError:
            return {}
        return counts

    def ready(self, limit: float) -> None:
        """Wait until each is scraped and each part of the load has done something. Raises SystemExit."""

        def missing() -> list[str]:
            try:
                targets = self.api("targets?state=active")["activeTargets"]
            except (urllib.error.URLError, OSError):
                return ["prometheus"]
            up = {each["labels"]["instance"] for each in targets if each["health"] == "up"}
            wanted = {name: each for name, each in self.members.items() if each.http and each.process is not None}
            counts = self.done()
            idle = [name for name, count in counts.items() if count == 0 and not name.endswith(" failed")]
            return [name for name, each in wanted.items() if each.instance not in up] + (idle if counts else ["load"])

        end = time.monotonic() + limit
        while found := missing():
            if time.monotonic() > end:
                raise SystemExit(f"not ready: {', '.join(found)}; ended: {self.ended()}")
            time.sleep(0.5)
