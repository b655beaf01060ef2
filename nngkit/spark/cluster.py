"""Run on a cluster: the archive of Python packages for the workers, and the command that submits a job.

::

    pack("env.tar.gz")                                       # nngkit and its dependencies, native wheels included
    command("spark://host:7077", "env.tar.gz", "job.py", ["--journal", "s3://..."])

The workers need only Python (the same minor version) and Spark. They are sent one archive, which Spark unpacks in each
executor's folder under the name after the `#`; PYTHONPATH points there. Native wheels (pyarrow, pynng, pycrdt) keep
their libraries beside their modules and so can be relocated; a virtual environment cannot.
"""

from __future__ import annotations

import os
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Final

from nngkit.errors import ConfigError
from nngkit.spark.session import check_packages

FOLDER: Final = "nngkit-packages"  # folder that the archive is unpacked to
NEEDED: Final = ("nngkit",)
EXTRAS: Final = ("spark", "documents", "journal")  # of nngkit: imported by its jobs and sources in a worker
PROVIDED: Final = frozenset({"pyspark", "py4j"})  # part of every Spark


def needed(names: Iterable[str] = NEEDED, extras: Sequence[str] = EXTRAS) -> list[str]:
    """Return the distributions to send: `names` and their dependencies, as installed on this machine.

    Raises ConfigError for one that is not installed.
    """
    check_packages()
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found: dict[str, None] = {}
    waiting = [(canonicalize_name(name), tuple(extras)) for name in names]
    while waiting:
        name, wanted = waiting.pop()
        if name in found or name in PROVIDED:
            continue
        try:
            requirements = metadata.requires(name) or []
        except metadata.PackageNotFoundError as error:
            advice = f": pip install 'nngkit[{','.join(extras)}]'" if "nngkit" in found else ""
            raise ConfigError("archive", f"{name} is not installed here, so it cannot be sent{advice}", name) from error
        found[name] = None
        for text in requirements:
            requirement = Requirement(text)
            if requirement.marker is None or any(
                requirement.marker.evaluate({"extra": each}) for each in ("", *wanted)
            ):
                waiting.append((canonicalize_name(requirement.name), tuple(requirement.extras)))
    return sorted(found)


def pack(target: str | os.PathLike[str], names: Iterable[str] = NEEDED) -> Path:
    """Write the archive atomically; return its path. Takes seconds, as it is some 100 MB."""
    path = Path(target)
    if path.suffixes[-2:] != [".tar", ".gz"]:
        raise ConfigError("archive", f"{path}: Spark can unpack only a .tar.gz", str(path))
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with tarfile.open(draft, "w:gz", compresslevel=1) as archive:  # 1: read once, over a fast network
            for source, inside in sorted(set(_files(needed(names)))):
                archive.add(source, inside, recursive=False)
        os.replace(draft, path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise ConfigError("archive", f"{path}: {error.strerror or error}", str(path)) from error
    return path


def _files(names: Sequence[str]) -> Iterator[tuple[Path, str]]:
    for name in names:
        if name == "nngkit":
            # An editable install, as in a checkout, lists no modules: send the tree itself.
            package = Path(__file__).resolve().parents[1]
            for path in package.rglob("*"):
                if path.is_file() and "__pycache__" not in path.parts:
                    yield path, str(PurePosixPath("nngkit", path.relative_to(package).as_posix()))
            bricks = Path(
                os.path.realpath(package / "protocols")
            )  # a symlink in a checkout, which rglob does not follow
            for path in bricks.rglob("*.py"):
                yield path, str(PurePosixPath("nngkit/protocols", path.relative_to(bricks).as_posix()))
            continue
        for each in metadata.files(name) or ():
            if ".." in each.parts or "__pycache__" in each.parts:
                continue  # scripts, unused on workers
            found = Path(str(each.locate()))
            if found.is_file():
                yield found, each.as_posix()


def python_path() -> str:
    """Return the PYTHONPATH under which the driver's host finds what the archive provides to workers.

    Spark plans a read in a process beside the driver, run by the workers' Python as found on this machine.
    """
    folders = [str(Path(__file__).resolve().parents[2]), *(path for path in sys.path if path.endswith("-packages"))]
    return os.pathsep.join(dict.fromkeys(folders))


def command(
    master: str,
    archive: str | os.PathLike[str] | None,
    script: str | os.PathLike[str],
    arguments: Sequence[str],
    conf: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the command that submits `script` with these arguments, in client mode. Raises ConfigError."""
    check_packages()
    import pyspark

    home = os.environ.get("SPARK_HOME") or os.path.dirname(pyspark.__file__)
    words = [os.path.join(home, "bin", "spark-submit"), "--master", master, "--name", "nngkit"]
    settings = dict(conf or {})
    if archive is not None:
        words += ["--archives", f"{Path(archive).resolve()}#{FOLDER}"]
        settings.setdefault("spark.executorEnv.PYTHONPATH", FOLDER)
    # The workers' Python: the driver's path does not apply there, unless PYSPARK_PYTHON says so.
    settings.setdefault("spark.pyspark.python", os.environ.get("PYSPARK_PYTHON", f"python3.{sys.version_info[1]}"))
    settings.setdefault("spark.pyspark.driver.python", sys.executable)
    settings.setdefault("spark.log.level", "WARN")  # spark-submit's default logs every task
    for name, value in settings.items():
        words += ["--conf", f"{name}={value}"]
    return [*words, str(script), *arguments]
