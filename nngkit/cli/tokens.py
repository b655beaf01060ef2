"""The peers' shared token: from an option, the environment, the address to join, or a file: named, or beside the store.

NNGKIT_TOKEN_FILE names a file, as orchestrators put secrets into files; a file's last line end is not part of it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs

from nngkit.errors import ConfigError

MOST: Final = 4096  # characters of a secret in a file; tickets are the longest
SECRET: Final = 16  # random bytes of a token; in hex, which never looks like an option


def from_environment(name: str = "NNGKIT_TOKEN") -> str | None:
    """Return the secret in the variable `name`, or in the file that `name`_FILE names; None without. ConfigError."""
    file = f"{name}_FILE"
    said, path = os.environ.get(name), os.environ.get(file)
    if said and path:
        raise ConfigError(file, f"{name} is set, too")
    return secret_in(path, file) if path else said or None


def secret_in(path: str, what: str) -> str:
    """Return the secret in a file. Raises ConfigError that names `what`."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MOST + 1).removesuffix("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(what, f"{path}: {getattr(error, 'strerror', None) or error}", path) from error
    if not text or len(text) > MOST or not text.isprintable():
        raise ConfigError(what, f"{path}: is not one line of printable text, of {MOST} characters at most", path)
    return text


def joining(urls: Iterable[str], token: str | None, option: str) -> tuple[str | None, list[str]]:
    """Return the token, and `urls` without `#token=TOKEN`. Raises ConfigError that names `option` if tokens differ."""
    token = token or from_environment()
    places = []
    for url in urls:
        place, _, fragment = url.partition("#")
        said = parse_qs(fragment).get("token", [None])[0] if fragment else None
        if said is not None and token not in (None, said):
            raise ConfigError(option, f"the token of {place} differs from --token or NNGKIT_TOKEN")
        token = token or said
        places.append(place)
    return token, places


def kept(path: Path) -> str:
    """Return the token in the file `path`, readable by its owner only; make one at the first call.

    Raises ConfigError.
    """
    try:
        return _read(path) or _made(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("token", f"{path}: {getattr(error, 'strerror', None) or error}", str(path)) from error


def _read(path: Path) -> str:
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return ""
    with open(file, encoding="ascii") as text:
        os.fchmod(file, 0o600)  # a copy or a restored backup may be readable by others
        return text.read().strip()


def _made(path: Path) -> str:
    token = secrets.token_hex(SECRET)
    making = path.with_name(f"{path.name}-new")
    making.unlink(missing_ok=True)
    file = os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(file, "w", encoding="ascii") as text:
        text.write(f"{token}\n")
        text.flush()
        os.fsync(file)
    making.replace(path)
    return token
