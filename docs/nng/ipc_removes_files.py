"""A listener on ipc removes a regular file at its path, and at its close whatever is there.

pynng 0.9.0 (NNG 1.11.0). ipc_remove_stale unlinks the path if a connection to it is refused, as it is by a file that is
no socket; ipc_listener_doclose unlinks it without a look.
Expected: NNG_EADDRINUSE for a file that is no socket; at the close only the listener's own socket is removed.
Observed: the file's content is lost, and a file that has taken the path is removed at the close.
"""

import pathlib
import tempfile

from _harness import done
from pynng import ffi, lib

with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "notes.txt")
    path.write_text("precious")
    listener = ffi.new("nng_stream_listener **")
    assert not lib.nng_stream_listener_alloc(listener, f"ipc://{path}".encode())
    listened = lib.nng_stream_listener_listen(listener[0]) == 0
    path.unlink()
    path.write_text("of another program")
    lib.nng_stream_listener_close(listener[0])
    removed = not path.exists()
found = f"listens at the path of a file: {listened}; removes another file at its close: {removed}"
done(found, listened and removed)
