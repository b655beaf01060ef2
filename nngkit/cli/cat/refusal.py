"""The reason why an address accepts no connection, found by a plain one: dialers retry silently. Knows no NNG.

::

    refusal("tcp://127.0.0.1:1")     'Connection refused'
    refusal("tcp://127.0.0.1:9000")  None: there is a listener, of any protocol
"""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

PATIENCE = 5.0  # seconds for a connection to be accepted or refused


def refusal(url: str) -> str | None:
    """Return the reason in NNG's words; None if a connection is accepted, or neither happens in 5 s."""
    scheme, _, rest = url.partition("://")
    try:
        if scheme in ("ipc", "unix", "abstract"):
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(PATIENCE)
                probe.connect(f"\0{rest}" if scheme == "abstract" else rest)
        elif scheme == "inproc":
            return "Connection refused"  # this process has no listener
        else:
            parts = urlsplit(url)
            port = parts.port or (443 if scheme.startswith("wss") else 80)
            socket.create_connection((parts.hostname or "", port), PATIENCE).close()
    except socket.gaierror:
        return "Address invalid"
    except TimeoutError:
        return None
    except (ConnectionRefusedError, FileNotFoundError):
        return "Connection refused"
    except OSError as error:
        return error.strerror or str(error)
    return None
