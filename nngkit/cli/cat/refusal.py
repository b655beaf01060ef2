"""Why nobody answers at an address: asked by a plain connection, as a dialer tries in silence. Knows no NNG.

::

    refusal("tcp://127.0.0.1:1")     'Connection refused'
    refusal("tcp://127.0.0.1:9000")  None: somebody listens there, whatever it speaks
"""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

__all__ = ["refusal"]

PATIENCE = 5.0  # seconds for a connection to be taken or refused


def refusal(url: str) -> str | None:
    """The reason, in NNG's words; None if a connection is accepted there, or does not come about in 5 s."""
    scheme, _, rest = url.partition("://")
    try:
        if scheme in ("ipc", "unix", "abstract"):
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(PATIENCE)
                probe.connect(f"\0{rest}" if scheme == "abstract" else rest)
        elif scheme == "inproc":
            return "Connection refused"  # this process listens nowhere
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
