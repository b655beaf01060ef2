"""Small files on any storage that Spark can write, without a job: Hadoop's FileSystem, as Spark configured it.

::

    storage = Storage(spark, "s3a://bucket/out/progress")
    storage.write("generation=7/offsets.json", "...")
    storage.names("generation=7")                           ["offsets.json"]

A job that reads one line takes 50 ms or more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTF_8: Final = "UTF-8"


class Storage:
    """Files below `folder`, a path or URI."""

    def __init__(self, spark: SparkSession, folder: str) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._folder = jvm.org.apache.hadoop.fs.Path(folder)
        session: Any = spark._jsparkSession
        self._system = self._folder.getFileSystem(session.sessionState().newHadoopConf())

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._folder, name)

    def exists(self) -> bool:
        """Return True if the folder exists."""
        return bool(self._system.exists(self._folder))

    def names(self, folder: str = ".") -> list[str]:
        """Return the names in a folder; none if it does not exist."""
        path = self._path(folder)
        if not self._system.exists(path):
            return []
        return [str(each.getPath().getName()) for each in self._system.listStatus(path)]

    def read(self, name: str) -> str:
        """Return a file's text."""
        stream = self._system.open(self._path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, UTF_8))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a file whole, replacing an earlier one: under a name that Spark ignores first, then renamed."""
        path = self._path(name)
        draft = self._jvm.org.apache.hadoop.fs.Path(path.getParent(), f"_{path.getName()}.tmp")
        stream = self._system.create(draft, True)
        try:
            stream.write(text.encode())
        finally:
            stream.close()
        self._system.delete(path, False)
        if not self._system.rename(draft, path):
            raise OSError(f"{path}: the file could not be renamed to this name")
