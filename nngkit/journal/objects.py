"""Storage in an object store: S3 and what speaks its protocol, Google Cloud Storage, Azure. By obstore.

::

    s3://bucket/journal                                    # credentials and region: the environment, as other AWS tools
    s3://bucket/journal?endpoint=http://127.0.0.1:9000     # other servers; further words are the store's settings

An object becomes visible when it is complete, so nothing is written under a scratch name and moved, which a store does
by a second copy. A manifest is replaced only if it is the version that its owner has read or written: the store
compares, so of two owners one is refused. A request that fails for a moment, or is answered by 503, is repeated; a
repeated write that arrives twice finds its own version.

A segment is read as a whole, into memory: the manifest says which ones a read needs.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from nngkit.errors import ConfigError
from nngkit.journal.files import ABSENT, Changed, SetAside, shown

REQUEST: Final = dt.timedelta(seconds=30)  # a request that takes longer is repeated
REPEATED: Final = dt.timedelta(seconds=60)  # from the first attempt to the last
# Settings of the HTTP client (object_store's ClientConfigKey). Among those of a store, obstore 0.12 panics at them.
CLIENT: Final = frozenset(
    (
        *("allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type", "http1_only"),
        *("http2_keep_alive_interval", "http2_keep_alive_timeout", "http2_keep_alive_while_idle", "http2_only"),
        *("http2_max_frame_size", "pool_idle_timeout", "pool_max_idle_per_host", "proxy_ca_certificate", "proxy_url"),
        *("proxy_excludes", "randomize_addresses", "read_timeout", "root_certificate", "timeout", "user_agent"),
    )
)
PREFIXES: Final = {"s3": "aws", "gs": "google", "az": "azure"}  # that a setting's name may have
FROM: Final = 8 << 20  # bytes from which an object is uploaded in parts, each of which is repeated alone


def open_objects(uri: str) -> ObjectStorage:
    """Return the storage at a URI. Raises ConfigError if obstore is not installed or does not know a setting."""
    try:
        from obstore.exceptions import BaseError
        from obstore.store import from_url
    except ImportError as error:
        why = f"{shown(uri)}: obstore is not installed: pip install 'nngkit[objects]'"
        raise ConfigError("journal", why, shown(uri)) from error
    try:
        parts = urlsplit(uri)
        words: Any = dict(parse_qsl(parts.query, keep_blank_values=True))
        if of_client := [word for word in words if word.lower().removeprefix(f"{PREFIXES[parts.scheme]}_") in CLIENT]:
            raise ValueError(f"{of_client[0]} is a setting of the HTTP client, which cannot be set")
        plain = words.get("endpoint", "").startswith("http://")
        client: Any = {"timeout": REQUEST, "connect_timeout": REQUEST / 3, "allow_http": plain}
        store: Any = from_url(
            f"{parts.scheme}://{parts.netloc}",
            config=words or None,
            client_options=client,
            retry_config={"retry_timeout": REPEATED},
        )
    except (BaseError, ValueError, TypeError) as error:
        raise _refused(uri, error) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":  # of pyo3, which exports it nowhere
            raise
        raise _refused(uri, error) from error
    return ObjectStorage(store, parts.path.strip("/"), f"{parts.scheme}://{parts.netloc}{parts.path}".rstrip("/"))


def _refused(uri: str, error: BaseException) -> ConfigError:
    return ConfigError("journal", f"{shown(uri)}: {str(error).splitlines()[0]}", shown(uri))


class ObjectStorage(SetAside):
    """Storage in an object store."""

    def __init__(self, store: Any, root: str, uri: str) -> None:
        self.folder: Path | None = None
        self._store = store
        self._root = root
        self._uri = uri

    def _path(self, name: str) -> str:
        return "/".join(part for part in (self._root, name) if part)

    def shown(self, name: str) -> str:
        return f"{self._uri}/{name}"

    def read(self, name: str) -> tuple[bytes, str | None]:
        with self._raising(name):
            found = self._store.get(self._path(name))
            return bytes(found.bytes()), found.meta["e_tag"]
        raise AssertionError

    def replace(self, name: str, data: bytes, tag: str | None = None) -> str | None:
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        mode: Any = "overwrite" if tag is None else "create" if tag == ABSENT else {"e_tag": tag}
        with self._raising(name):
            try:
                written: str | None = self._store.put(self._path(name), data, mode=mode, use_multipart=False)["e_tag"]
            except (AlreadyExistsError, PreconditionError, FileNotFoundError) as error:
                raise Changed(116, "another process has replaced it", self.shown(name)) from error
            return written
        raise AssertionError

    def publish(self, source: Path, name: str) -> None:
        size = source.stat().st_size
        with self._raising(name):
            self._store.put(self._path(name), source, use_multipart=size >= FROM)
        if (arrived := self.size(name)) != size:
            raise OSError(f"{self.shown(name)}: {arrived} bytes arrived, and {size} were sent")
        source.unlink()

    def open(self, name: str) -> Any:
        import pyarrow as pa

        with self._raising(name):
            data = memoryview(self._store.get(self._path(name)).bytes())
        # Copied, so that Arrow's threads hold no Python object: releasing one takes the GIL, also while Python exits.
        buffer = pa.allocate_buffer(len(data))
        with pa.FixedSizeBufferWriter(buffer) as writer:
            writer.write(data)
        return pa.BufferReader(buffer)

    def remove(self, name: str) -> None:
        with self._raising(name), contextlib.suppress(FileNotFoundError):
            self._store.delete(self._path(name))

    def rename(self, name: str, new: str) -> None:
        with self._raising(name):
            self._store.rename(self._path(name), self._path(new), overwrite=False)

    def link(self, name: str, new: str) -> None:
        with self._raising(name):
            self._store.copy(self._path(name), self._path(new), overwrite=True)

    def size(self, name: str) -> int:
        with self._raising(name):
            return int(self._store.head(self._path(name))["size"])
        raise AssertionError

    def exists(self, name: str) -> bool:
        try:
            self.size(name)
        except FileNotFoundError:
            return False
        return True

    def names(self, folder: str) -> list[str]:
        prefix = self._path(folder)
        with self._raising(folder):
            found = self._store.list_with_delimiter(f"{prefix}/" if prefix else None)
            paths = [*found["common_prefixes"], *(each["path"] for each in found["objects"])]
        return sorted(path.rstrip("/").rpartition("/")[2] for path in paths)

    @contextlib.contextmanager
    def _raising(self, name: str) -> Iterator[None]:
        """Raise OSError, or FileNotFoundError, with the full name for the store's own errors."""
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(2, "there is no such object", self.shown(name)) from error
        except BaseError as error:
            raise OSError(5, str(error).splitlines()[0], self.shown(name)) from error
