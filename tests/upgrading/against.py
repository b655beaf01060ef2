"""Run processes of this version and of an older checkout together, and print what passed. Run by hand::

    python tests/upgrading/against.py OLD [CASE ...]

OLD is a checkout with its own .venv, or one whose dependencies this Python has. Each case runs both ways round. In a
case of processes at the same time, the first one listens. In a case of processes one after another, each continues
the files of the one before it. Without CASE, the output of commands on the fixtures is compared too. Exit code: the
number of failures.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

NEW: Final = Path(__file__).resolve().parents[2]
FIXTURES: Final = Path(__file__).resolve().parent
ENDS: Final = FIXTURES / "ends.py"
WAIT: Final = 60.0  # seconds for a process to end

# name: roles with the version that plays each in the first run; the second run exchanges the versions
TOGETHER: Final = {
    "PAIR (v0)": ("pair0_echo A", "pair0_speak B"),
    "PAIR (v1)": ("pair1_echo A", "pair1_speak B"),
    "REQREP": ("rep A", "req B"),
    "PIPELINE": ("pull A", "push B"),
    "PIPELINE, batches": ("batch_pull A", "batch_push B"),
    "BUS": ("bus_echo A", "bus_speak B"),
    "PUBSUB": ("pub A", "sub B"),
    "PUBSUB, numbered": ("numbered_pub A", "numbered_sub B"),
    "SURVEY": ("surveyor A", "respondent B"),
    "ServiceDiscovery with Service": ("service_discovery A", "service B"),
    "daemon with Service and Resolver": ("daemon A", "service B", "resolver B"),
    "daemon and Resolver with Service": ("daemon A", "service B", "resolver A"),
    "daemon and Service with Resolver": ("daemon A", "service A", "resolver B"),
    "DocumentPeer with DocumentPeer": ("edit_a A", "edit_b B"),
    "DocumentPeer with a store": ("stored_a A", "edit_b B"),
    "DocumentPeer, both with a store": ("stored_a A", "stored_b B"),
    "DocumentPeer with DocumentRecorder": ("peer_of_recorder A", "document_recorder B"),
    "Recorder fed by PUSH and REQ": ("recorder A", "feed B"),
    "cluster: a host, then workers": ("cluster_host A", "cluster_worker B", "cluster_submitter A"),
    "cluster: a host and a worker, then a submitter": ("cluster_host A", "cluster_worker A", "cluster_submitter B"),
    "cluster: voters": ("cluster_voter_a A", "cluster_voter_b B", "cluster_voter_c A"),
}
ONE_AFTER_ANOTHER: Final = {
    "journal with an open log, continued": ("record_0 A", "record_1 B", "record_2 A"),
    "journal of documents, restored": ("documents_0 A", "documents_1 B", "documents_2 A"),
    "store of documents, continued": ("store_0 A", "store_1 B", "store_2 A"),
    "store of a voter, continued": ("cluster_store_0 A", "cluster_store_1 B", "cluster_store_2 A"),
    "snapshot of the jobs": ("cluster_snapshot_0 A", "cluster_snapshot_1 B", "cluster_snapshot_2 A"),
}

# Commands on copies of the fixtures beside this file; both versions print the same, up to the order of keys in JSON.
SAME_OUTPUT: Final = (
    *("journal ls journal", "journal ls journal --json", "journal stats journal --json"),
    *("journal verify journal --json", "journal export journal", "journal export journal --format raw"),
    *("doc log minutes --store store.sqlite --json", "doc versions minutes --store store.sqlite --json"),
    *("doc cat minutes --store store.sqlite", "doc cat lists/shopping --store store.sqlite --json"),
)


class End:
    """A process with one role, in one version."""

    def __init__(self, checkout: Path, role: str, folder: str, *addresses: str) -> None:
        self.process = subprocess.Popen(
            [python_of(checkout), "-B", ENDS, role, folder, *addresses],
            env={**os.environ, "PYTHONPATH": str(checkout)},
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def finish(self) -> str:
        """Close its input and wait; return the end of its errors, empty if there is none."""
        try:
            _, errors = self.process.communicate(timeout=WAIT)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, errors = self.process.communicate()
            return f"did not end in {WAIT:g} s; {errors[-2000:]}"
        return "" if self.process.returncode == 0 else errors[-2000:] or f"exit code {self.process.returncode}"


def together(roles: list[tuple[str, Path]], folder: str) -> list[str]:
    """Run the roles at the same time. Return the failures."""
    ends: list[End] = []
    addresses: list[str] = []
    for role, checkout in roles:
        end = End(checkout, role, folder, *addresses)
        ends.append(end)
        if not addresses:
            addresses = json.loads(end.line() or '["tcp://127.0.0.1:1"]')
    results = [end.line() for end in ends]
    failures = [failure for end in ends if (failure := end.finish())]
    return failures or ([] if len(set(results)) == 1 else [f"different results: {results}"])


def one_after_another(roles: list[tuple[str, Path]], folder: str) -> list[str]:
    """Run the roles in order on the same folder. Return the failures."""
    return [failure for role, checkout in roles if (failure := End(checkout, role, folder).finish())]


def python_of(checkout: Path) -> Path | str:
    own = checkout / ".venv" / "bin" / "python"
    return own if own.exists() else sys.executable


def output(checkout: Path, arguments: str) -> str:
    """Return what `nngkit` prints, and its exit code. The folder has the same path for both versions."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(FIXTURES / "journal", Path(folder, "journal"))
        shutil.copy(FIXTURES / "store.sqlite", folder)
        done = subprocess.run(
            [python_of(checkout), "-B", "-m", "nngkit", *arguments.split()],
            env={**os.environ, "PYTHONPATH": str(checkout)},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=WAIT,
        )
        printed = done.stdout.replace(folder, "")
        if "--json" in arguments:  # yrs yields the keys of a map in any order
            printed = "\n".join(json.dumps(json.loads(line), sort_keys=True) for line in printed.splitlines())
        return f"{done.returncode}\n{printed}"


def compare_output(old: Path) -> int:
    """Print a table of the commands, and return how many of them differ."""
    print("\n| command | output |\n|---|---|")
    differ = 0
    for arguments in SAME_OUTPUT:
        before, now = output(old, arguments), output(NEW, arguments)
        same = before == now and before.startswith("0\n")
        differ += not same
        print(f"| `nngkit {arguments}` | {'same' if same else 'differs'} |", flush=True)
        if not same:
            print(before, now, sep="\n", file=sys.stderr)
    return differ


def main(old: Path, names: list[str]) -> int:
    failed = 0
    print("| case | A = before, B = this | A = this, B = before |\n|---|---|---|")
    for name, case in {**TOGETHER, **ONE_AFTER_ANOTHER}.items():
        if names and name not in names:
            continue
        cells, failures = [], []
        for first, second in ((old, NEW), (NEW, old)):
            roles = [(role, first if side == "A" else second) for role, side in (each.split() for each in case)]
            start = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                wrong = (together if name in TOGETHER else one_after_another)(roles, folder)
            cells.append("failed" if wrong else f"passed, {time.monotonic() - start:.1f} s")
            failures += wrong
        joined = " with " if name in TOGETHER else ", then "
        print(f"| {name}: {joined.join(case)} | {' | '.join(cells)} |", flush=True)
        for failure in failures:
            print(failure, file=sys.stderr)
        failed += len(failures)
    return failed + (0 if names else compare_output(old))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve(), sys.argv[2:]))
