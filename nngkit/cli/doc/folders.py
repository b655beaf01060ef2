"""Documents as files of one folder: names as paths, and writing that never leaves the folder.

======================  ===================================================
DIR/minutes.json        all that is in the document "minutes"
DIR/minutes.txt         its text "body"
DIR/minutes.texts/a.txt its text "a"; "a/b" is a%2Fb.txt
======================  ===================================================

A name with a slash has folders. What would make two documents one file, or hide it, is written as %XX. Every folder on
the way is opened by itself and never through a link; a file is written beside its place and then renamed to it.
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

__all__ = ["Found", "name_of", "path_of", "walk", "write"]

ENDINGS: Final = (".json", ".txt", ".texts")
FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Found = tuple[str, str | None, Path]
"""A document's name, the text that the file has of it (None: all of the document), and the file."""


def path_of(name: str, root: str | None = None) -> str:
    """Where a document goes (`root`: that text of it), below the folder. Raises ConfigError for a name that is none.

    >>> path_of("minutes/2026"), path_of("minutes/2026", "body"), path_of("minutes", "../a")
    ('minutes/2026.json', 'minutes/2026.txt', 'minutes.texts/..%2Fa.txt')
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
    """The document that a path below the folder is of, and which text of it; None for a file that is none of ours."""
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
    """The documents in a folder, in order; links are left out. Raises ConfigError for a name that no document has."""
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
    """Put a file below the folder. Raises OSError, also where a link stands in the way."""
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
