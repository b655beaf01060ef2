"""Look up known vulnerabilities of all that the locks pin, and write a bill of materials of what users install.

    python3 dev.py audit

Asks PyPI's index of advisories, by pip-audit. Where the index that pip uses has none, the packages are named as not
audited, and that is no failure. The bill of materials is CycloneDX, build/sbom.json, of requirements/run.lock and
extras.lock: the same locks give the same bytes.

Exit codes: 0 nothing is known; 1 a pinned version has a vulnerability; 2 pip-audit could not read a lock.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "requirements"
USED = ("run.lock", "extras.lock")  # of users; the others are tools of this checkout
BILL = ROOT / "build" / "sbom.json"


@dataclass
class Found:
    """Audit of one lock by an index. ``known``: lines about vulnerabilities."""

    audited: int = 0
    unknown: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)


def read(report: str) -> Found:
    """Return what a report of ``pip-audit --format json`` says."""
    found = Found()
    for package in json.loads(report)["dependencies"]:
        if "skip_reason" in package:
            found.unknown.append(package["name"])
            continue
        found.audited += 1
        for each in package["vulns"]:
            fixed = ", ".join(each["fix_versions"]) or "none"
            found.known.append(f"{package['name']} {package['version']}: {each['id']}; fixed in: {fixed}")
    return found


def summary(found: Found) -> str:
    """Return a line about one lock."""
    if not found.audited:
        return f"not audited: the index has no advisories of its {len(found.unknown)} packages, or cannot be reached"
    missing = f"; not audited: {', '.join(found.unknown)}" if found.unknown else ""
    return f"{found.audited} packages audited, {len(found.known)} vulnerabilities{missing}"


def audit(lock: Path) -> Found | None:
    """Ask the index about a lock; return None, after pip-audit has said why, if it could not be read."""
    options = ["--disable-pip", "--no-deps", "--format", "json", "--progress-spinner", "off"]
    command = [sys.executable, "-m", "pip_audit", *options, "--requirement", str(lock)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if not done.stdout.strip():
        if "requests.exceptions." in done.stderr or "ServiceError" in done.stderr:
            return Found(unknown=re.findall(r"^([\w.-]+)==", lock.read_text(), re.MULTILINE))
        sys.stderr.write(done.stderr)
        return None
    return read(done.stdout)


def write_bill() -> int:
    """Write the bill of materials; return how many packages are in it."""
    BILL.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        both = Path(folder) / "used.txt"
        both.write_text("".join((LOCKS / name).read_text() for name in USED))
        options = ["--output-reproducible", "--pyproject", str(ROOT / "pyproject.toml"), "--output-file", str(BILL)]
        command = [sys.executable, "-m", "cyclonedx_py", "requirements", *options, str(both)]
        subprocess.run(command, check=True, timeout=120)
    return len(json.loads(BILL.read_text())["components"])


def main() -> int:
    """Audit each lock and write the bill of materials; return the exit code."""
    code = 0
    for lock in sorted(LOCKS.glob("*.lock")):
        found = audit(lock)
        if found is None:
            return 2
        lines = [f"{lock.name}: {summary(found)}", *(f"  {line}" for line in found.known)]
        sys.stdout.write("".join(f"{line}\n" for line in lines))
        code = 1 if found.known else code
    sys.stdout.write(f"{BILL.relative_to(ROOT)}: {write_bill()} packages\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
