"""Choice of a journal's storage by its path or URI."""

from __future__ import annotations

import os
from typing import Final

from nngkit.errors import ConfigError
from nngkit.file_modes import checked_path
from nngkit.journal.files import LocalStorage, SharedStorage, Storage

OBJECTS: Final = ("s3", "gs", "az")  # schemes of object stores


def open_storage(location: str | os.PathLike[str]) -> Storage:
    """Return the storage at a path or URI. Raises ConfigError for one that cannot be or is not supported."""
    text = os.fspath(location)
    if "://" not in text:
        return LocalStorage(checked_path("journal", text).absolute())
    if text.partition(":")[0] in OBJECTS:
        from nngkit.journal.objects import open_objects  # late, as the imports below: a local folder needs neither

        return open_objects(text)
    import pyarrow as pa
    from pyarrow import fs

    try:
        filesystem, root = fs.FileSystem.from_uri(text)
    except (pa.ArrowException, ValueError, OSError) as error:
        raise ConfigError("journal", f"{text}: {str(error).splitlines()[0]}", text) from error
    return SharedStorage(filesystem, root, text)
