"""Documents as files of one folder: names to paths, and writing that never leaves the folder.

======================  ===================================================
DIR/minutes.json        the whole document "minutes"
DIR/minutes.txt         its text "body"
DIR/minutes.texts/a.txt its text "a"; "a/b" is a%2Fb.txt
======================  ===================================================

Slashes in a name make folders. Characters that would map two documents to one file, or hide it, are written as %XX.
Every folder of a path is opened separately and never through a link; a file is written under a temporary name in its
folder, and renamed.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from nngkit.cli.doc.arguments import BODY
from nngkit.documents.names import check_name
from nngkit.errors import ConfigError

ENDINGS: Final = (".json", ".txt", ".texts")
FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Found = tuple[str, str | None, Path]
"""A document's name, the root that the file contains (None: the whole document), and the file."""


def path_of(name: str, root: str | None = None) -> str:
    """Return the path of a document, or of its text `root`, below the folder. Raises ConfigError for an invalid name.

    >>> path_of("minutes/2026"), path_of("minutes/2026", "body"), path_of("minutes", "../a")
    ('minutes/2026.json', 'minutes/2026.txt', 'minutes.texts/%2E.%2Fa.txt')
    """
    *folders, last = map(_segment, check_name(name).split("/"))
    folders = [_folder(segment) for segment in folders]
    if root is None:
        last += ".json"
    elif root == BODY:
        last += ".txt"
    else:
        folders.append(f"{last}.texts")
        last = f"{_text_file(root)}.txt"
    return "/".join([*folders, last])


def _segment(segment: str) -> str:
    segment = segment.replace("%", "%25")
    return f"%2E{segment[1:]}" if segment.startswith(".") else segment


def _folder(segment: str) -> str:
    for ending in ENDINGS:
        if segment.endswith(ending):
            return f"{segment.removesuffix(ending)}%2E{ending[1:]}"
    return segment


def _text_file(root: str) -> str:
    quoted = "".join(
        each if each.isprintable() and (each.isalnum() or ord(each) > 127) else quote(each, safe=" .-_~")
        for each in root
    )
    return f"%2E{quoted[1:]}" if quoted.startswith(".") else quoted


def name_of(path: str) -> tuple[str, str | None] | None:
    """Return the document of a path below the folder, and its root; None for other files."""
    *folders, last = path.split("/")
    stem, dot, kind = last.rpartition(".")
    if not (dot and stem) or kind not in ("json", "txt"):
        return None
    root = None if kind == "json" else BODY
    if kind == "txt" and folders and folders[-1].endswith(".texts"):
        root = unquote(stem)
        stem = folders.pop().removesuffix(".texts")
    return "/".join(unquote(segment) for segment in (*folders, stem)), root


def walk(folder: Path) -> Iterator[Found]:
    """Yield the documents in a folder, in order, without links. Raises ConfigError for an invalid name."""
    for at, folders, files in os.walk(folder, onerror=_raise):
        folders.sort()
        for file in sorted(files):
            path = Path(at, file)
            of = name_of(path.relative_to(folder).as_posix())
            if of is not None and not path.is_symlink():
                try:
                    yield check_name(of[0]), of[1], path
                except ConfigError as error:
                    raise ConfigError(str(path), str(error)) from error


def _raise(error: OSError) -> None:
    raise error


def write(folder: Path, path: str, content: bytes) -> None:
    """Write a file below the folder. Raises OSError, also if its path has a link."""
    *folders, last = path.split("/")
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for segment in folders:
            with suppress(FileExistsError):
                os.mkdir(segment, dir_fd=at)
            below = os.open(segment, FOLDER, dir_fd=at)
            os.close(at)
            at = below
        beside = f".{secrets.token_hex(8)}.part"
        fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=at)
        try:
            with open(fd, "wb") as file:
                file.write(content)
            os.rename(beside, last, src_dir_fd=at, dst_dir_fd=at)
        except BaseException:
            os.unlink(beside, dir_fd=at)
            raise
    finally:
        os.close(at)
