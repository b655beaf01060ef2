"""Aborting the accept of a TLS stream listener that has just been closed ends the process.

pynng 0.9.0 (NNG 1.11.0). An accept is posted, the listener is closed, and the accept is aborted at once.
Expected: the accept ends with NNG_ECLOSED.
Observed: the process ends by a signal, as the abort uses a connection that the close has freed (`tls_conn_cancel`
beside `tls_conn_cb`). By chance; argument: SECONDS to try for (60). Needs trustme.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time

import trustme
from pynng import ffi, lib

THREADS = 6


def listen_and_close(end, config):
    slot, listener = ffi.new("nng_aio **"), ffi.new("nng_stream_listener **")
    assert not lib.nng_aio_alloc(slot, ffi.NULL, ffi.NULL)
    aio = slot[0]
    while time.monotonic() < end:
        assert not lib.nng_stream_listener_alloc(listener, b"tls+tcp://127.0.0.1:0")
        assert not lib.nng_stream_listener_set_ptr(listener[0], b"tls-config", config)
        assert not lib.nng_stream_listener_listen(listener[0])
        lib.nng_stream_listener_accept(listener[0], aio)
        lib.nng_stream_listener_close(listener[0])
        lib.nng_aio_abort(aio, lib.NNG_ECLOSED)
        lib.nng_aio_wait(aio)
        lib.nng_stream_listener_free(listener[0])


def child(seconds):
    with tempfile.NamedTemporaryFile() as pem:
        pem.write(trustme.CA().issue_cert("localhost").private_key_and_cert_chain_pem.bytes())
        pem.flush()
        config = ffi.new("nng_tls_config **")
        assert not lib.nng_tls_config_alloc(config, lib.NNG_TLS_MODE_SERVER)
        assert not lib.nng_tls_config_cert_key_file(config[0], pem.name.encode(), ffi.NULL)
    end = time.monotonic() + seconds
    threads = [threading.Thread(target=listen_and_close, args=(end, config[0])) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os._exit(0)


if sys.argv[1:2] == ["child"]:
    child(float(sys.argv[2]))

end = time.monotonic() + (float(sys.argv[1]) if len(sys.argv) > 1 else 60.0)
runs = crashed = 0
while not crashed and (left := end - time.monotonic()) > 0:
    environment = os.environ | {"MALLOC_PERTURB_": "165"}  # freed memory is overwritten, so that its use shows
    command = [sys.executable, __file__, "child", str(min(5.0, left))]
    runs += 1
    crashed = subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=False, timeout=60).returncode
print(f"runs: {runs}; the last one ended with {crashed}", flush=True)
os._exit(0 if crashed else 1)
