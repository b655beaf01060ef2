"""Install one extra alone in a fresh environment, and run its smoke test there: `python3 dev.py extras`.

::

    .venv/bin/python tests/alone/run.py journal

The environment has what `pip install 'nngkit[journal]'` installs, and nothing else: the distributions that the extra's
requirements reach. They are linked from .venv, which has them from the locks, hashes checked, so nothing is fetched and
it takes a second. The smoke test is the script of the extra's name in this folder; "base" is nngkit without any extra.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE: Final = Path(__file__).parent
LONGEST: Final = 300  # seconds for a smoke test: a bound, as Spark is slow beside other work
SCRIPTS: Final = {  # extras with a script in common, or of another name
    **dict.fromkeys(("iceberg", "delta"), "lakehouse"),
    "dns": "dns_zone",  # a script dns.py would be found in place of the package
}


def reached(extra: str) -> list[Distribution]:
    """Return nngkit and all distributions that it requires, directly or not, with this extra."""
    found: dict[tuple[str, str], Distribution] = {}
    left = [("nngkit", ""), *([("nngkit", extra)] if extra != "base" else [])]
    while left:
        name, of = left.pop()
        if (name, of) in found:
            continue
        found[name, of] = there = distribution(name)
        for requirement in map(Requirement, there.requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": of}):
                left += [(canonicalize_name(requirement.name), each) for each in ("", *requirement.extras)]
    return [each for (_, of), each in sorted(found.items(), key=lambda item: item[0]) if not of]


def files_of(each: Distribution) -> list[Path]:
    """Return the installed files of a distribution.

    An older pip installs a source package, as PySpark is, the old way, with a list of its own: `files` of Python 3.11
    would be that of its sources.
    """
    old = each.read_text("installed-files.txt")
    if old is None:
        return [Path(str(each.locate_file(file))) for file in each.files or ()]
    site = Path(str(each.locate_file("")))
    [info] = site.glob(f"{each.name}-*.egg-info")
    return [Path(os.path.normpath(info / line)) for line in old.splitlines()]


def install(environment: Path, distributions: list[Distribution]) -> None:
    """Make a virtual environment with these distributions, as links to the files that are installed here."""
    venv.create(environment, symlinks=True)
    site = next(environment.glob("lib/python*/site-packages"))
    for each in distributions:
        installed = str(each.locate_file(""))
        for file in files_of(each):
            target = Path(os.path.normpath(site / os.path.relpath(file, installed)))
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(file, target)
            except FileExistsError:  # two distributions may have the same file
                pass
            except OSError:  # another file system
                shutil.copy2(file, target)


@contextmanager
def s3() -> Iterator[str]:
    """Serve S3 from this environment, whose test tools the fresh one has not; yield the URI of a bucket."""
    import boto3  # type: ignore[import-untyped]
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=f"http://{host}:{port}", **keys).create_bucket(Bucket="bucket")
    words = "&".join(f"{name}={value}" for name, value in keys.items() if name != "region_name")
    try:
        yield f"s3://bucket/j?endpoint=http://{host}:{port}&region=us-east-1&{words}"
    finally:
        server.stop()


def main(extra: str) -> int:
    """Return the exit code of the extra's smoke test."""
    distributions = reached(extra)
    sys.stdout.write(f"{extra}: {', '.join(f'{each.name} {each.version}' for each in distributions)}\n")
    sys.stdout.flush()
    script = HERE / f"{SCRIPTS.get(extra, extra)}.py"
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "VIRTUAL"))}
    with tempfile.TemporaryDirectory(dir=sys.prefix) as scratch:  # of one file system with what is linked
        install(Path(scratch, "venv"), distributions)
        work = Path(scratch, "work")
        work.mkdir()
        command = [str(Path(scratch, "venv", "bin", "python")), "-W", "error::DeprecationWarning:nngkit", str(script)]
        if extra == "objects":
            with s3() as uri:
                return subprocess.run([*command, uri], cwd=work, env=own, timeout=LONGEST).returncode
        return subprocess.run([*command, extra], cwd=work, env=own, timeout=LONGEST).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
