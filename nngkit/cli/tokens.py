"""The peers' shared token: from an option, the environment, or the address to join."""

from __future__ import annotations

import os
from collections.abc import Iterable
from urllib.parse import parse_qs

from nngkit.errors import ConfigError

__all__ = ["joining"]


def joining(urls: Iterable[str], token: str | None, option: str) -> tuple[str | None, list[str]]:
    """Return the token, and `urls` without `#token=TOKEN`. Raises ConfigError that names `option` if tokens differ."""
    token = token or os.environ.get("NNGKIT_TOKEN") or None
    places = []
    for url in urls:
        place, _, fragment = url.partition("#")
        said = parse_qs(fragment).get("token", [None])[0] if fragment else None
        if said is not None and token not in (None, said):
            raise ConfigError(option, f"the token of {place} differs from --token or NNGKIT_TOKEN")
        token = token or said
        places.append(place)
    return token, places
