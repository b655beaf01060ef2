"""Templates of `nngkit watch --template`: a file made from the providers, by Jinja2, and replaced as a whole.

::

    upstream answer {
    {% for provider in service("answer") %}
        server {{ provider.hostport }};
    {% endfor %}
    }

In a template: `service(NAME)`, a list of usable providers, perhaps empty; `services`, such lists by name; `providers`,
all of them, with their `state`. A provider has the fields of docs/schemas/watch.json, `hostport`, `host` and `port`.

Providers choose their names, zones and tags, and may be hostile: `server a; } include /etc/shadow` is a valid name of a
service. So providers with characters that a file of settings gives a meaning are left out (SAFE), unless `any_text`.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from nngkit.errors import ConfigError, NngkitError

try:
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ModuleNotFoundError as error:
    raise ConfigError("templates", "jinja2 is not installed: pip install 'nngkit[template]'") from error

SAFE: Final = frozenset("._:/@+%[]*~=,-")
"""Punctuation of addresses, versions and zones; none of it ends a word in the files of proxies, shells or INI."""
_TEXTS: Final = ("name", "address", "id", "version", "zone")


class TemplateFailed(NngkitError):
    """A template could not be filled in with the current providers."""


def unsafe_field(fields: Mapping[str, Any]) -> str:
    """Return the first field of a provider that has characters other than letters, digits and SAFE; "" without one."""
    for name in _TEXTS:
        if not _is_safe(fields[name]):
            return name
    return "" if all(map(_is_safe, fields["tags"])) else "tags"


def _is_safe(text: str) -> bool:
    return all(each.isalnum() or each in SAFE for each in text)


class Template:
    """A parsed template. Raises ConfigError with file and line if it does not parse."""

    def __init__(self, path: str, *, any_text: bool = False) -> None:
        self._path = path
        self._any_text = any_text
        environment = ImmutableSandboxedEnvironment(
            undefined=jinja2.StrictUndefined,
            loader=jinja2.FileSystemLoader(os.path.dirname(os.path.abspath(path))),
            keep_trailing_newline=True,
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,
        )
        environment.filters["token"] = _token
        environment.filters["quoted"] = _quoted
        try:
            source = Path(path).read_text("utf-8")
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ConfigError("--template", f"{error.filename or path}:{error.lineno}: {error.message}") from error
        except UnicodeDecodeError as error:
            raise ConfigError("--template", f"{path}: not UTF-8 text") from error
        except OSError as error:
            raise ConfigError("--template", f"{path}: {error.strerror or error}") from error

    def render(self, providers: Iterable[Mapping[str, Any]]) -> tuple[str, list[tuple[str, str]]]:
        """Return the text for these providers, and address and field of those left out. Raises TemplateFailed."""
        shown: list[dict[str, Any]] = []
        left_out: list[tuple[str, str]] = []
        for each in providers:
            if not self._any_text and (field := unsafe_field(each)):
                left_out.append((each["address"], field))
            else:
                shown.append({**each, **_places(each["address"])})
        services: dict[str, list[dict[str, Any]]] = {}
        for each in shown:
            usable = services.setdefault(each["name"], [])
            if each["usable"]:
                usable.append(each)
        try:
            text = self._template.render(
                services=services, providers=shown, service=lambda name: services.get(name, [])
            )
        except jinja2.TemplateSyntaxError as error:  # of an included file
            raise TemplateFailed(f"{error.filename or self._path}:{error.lineno}: {error.message}") from error
        except Exception as error:  # a template calls anything
            line = _line_of(error)
            place = f"{self._path}:{line}" if line else self._path
            raise TemplateFailed(f"{place}: {str(error) or type(error).__name__}") from error
        return text, left_out


def _line_of(error: BaseException) -> int:
    """Return the line of the template at which `error` was raised; 0 if unknown. Jinja2 rewrites its frames so."""
    line, frame = 0, error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == "<template>":
            line = frame.tb_lineno
        frame = frame.tb_next
    return line


def _places(address: str) -> dict[str, Any]:
    """Return host, port and both, as far as the address has them: an IPv6 host in brackets in `hostport`."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        host, port = "", None
    bracketed = f"[{host}]" if ":" in host else host
    return {"host": host, "port": port, "hostport": f"{bracketed}:{port}" if port is not None else bracketed}


def _token(value: object) -> str:
    text = str(value)
    if not text or not _is_safe(text):
        raise ValueError(f"{text!r} is not one word without quotes, spaces and separators")
    return text


def _quoted(value: object) -> str:
    text = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def replace_file(path: str, data: bytes) -> bool:
    """Replace the file by `data` in one step, as readers see it; return False if it has that content already.

    Mode and owner stay, and a symbolic link stays one. Raises OSError.
    """
    path = os.path.realpath(path)
    try:
        with open(path, "rb") as file:
            before: os.stat_result | None = os.fstat(file.fileno())
            if file.read() == data:
                return False
    except FileNotFoundError:
        before = None
    descriptor, new = tempfile.mkstemp(prefix=f".{os.path.basename(path)}.", dir=os.path.dirname(path))
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if before is None:
                os.fchmod(descriptor, 0o666 & ~_umask())
            else:
                with suppress(PermissionError):  # only root may give files away
                    os.fchown(descriptor, before.st_uid, before.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
            os.fsync(descriptor)
        os.replace(new, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(new)
        raise
    return True


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
