"""Values of either version of nngkit as plain JSON, by the names of their fields; the records of the journal."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

RECORDS: Final = 90


def record(number: int) -> dict[str, Any]:
    """Return what is put in the recorded journal, by number."""
    return {
        "value": f"{number} degrees".encode() + b"." * 60,
        "topic": ("weather", "orders")[number % 3 == 0],
        "protocol": "sub",
        "key": b"weather.oslo" if number % 3 else None,
        "headers": {"number": str(number).encode()} if number % 5 == 0 else None,
        "peer": "tcp://10.0.0.9:51234",
        "timestamp": 1_790_000_000_000_000 + number * 1_000_000,  # microseconds since 1970
    }


def described(value: Any) -> Any:
    """Return `value` as JSON has it: records as maps, bytes as hexadecimal digits, sets sorted."""
    if dataclasses.is_dataclass(value):
        return {
            each.name: described(getattr(value, each.name)) for each in dataclasses.fields(value) if each.name[0] != "_"
        }
    if (names := getattr(value, "__struct_fields__", None)) is not None:
        return {name: described(getattr(value, name)) for name in names if name != "v"}
    if isinstance(value, Enum):
        return described(value.value)
    if isinstance(value, bytes):
        return value.hex()
    if hasattr(value, "_asdict"):
        return described(value._asdict())
    if isinstance(value, Mapping):
        return {key if isinstance(key, str) else str(key): described(each) for key, each in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(map(described, value))
    if isinstance(value, tuple | list):
        return [described(each) for each in value]
    return value
