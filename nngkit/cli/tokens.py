"""The token that opens a door to documents: by an option, the environment, or behind the address to join at."""

from __future__ import annotations

import os
from collections.abc import Iterable
from urllib.parse import parse_qs

from nngkit.errors import ConfigError

__all__ = ["joining"]


def joining(urls: Iterable[str], token: str | None, option: str) -> tuple[str | None, list[str]]:
    """The token, and `urls` without their `#token=TOKEN`. Raises ConfigError that names `option` if there are two."""
    token = token or os.environ.get("NNGKIT_TOKEN") or None
    places = []
    for url in urls:
        place, _, fragment = url.partition("#")
        said = parse_qs(fragment).get("token", [None])[0] if fragment else None
        if said is not None and token not in (None, said):
            raise ConfigError(option, f"{place} comes with another token than --token or NNGKIT_TOKEN says")
        token = token or said
        places.append(place)
    return token, places
