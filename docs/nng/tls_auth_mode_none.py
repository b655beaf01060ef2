"""TLSConfig(auth_mode=AUTH_MODE_NONE) keeps NNG's default, under which a client demands a certificate.

pynng 0.9.0 (NNG 1.11.0). AUTH_MODE_NONE is 0, and pynng checks `if auth_mode`. `set_auth_mode` works.
Expected: a client without a CA connects.
Observed: with the argument it does not, with the call it does.
"""

import pynng
from _harness import CERT, KEY, done, url_of
from pynng import TLSConfig

server = TLSConfig(TLSConfig.MODE_SERVER, own_cert_string=CERT, own_key_string=KEY)
by_argument = TLSConfig(TLSConfig.MODE_CLIENT, auth_mode=TLSConfig.AUTH_MODE_NONE)
by_call = TLSConfig(TLSConfig.MODE_CLIENT)
by_call.set_auth_mode(TLSConfig.AUTH_MODE_NONE)
outcome = []
with pynng.Pair0(tls_config=server, recv_timeout=1000) as one:
    one.listen("tls+tcp://127.0.0.1:0")
    for config in (by_argument, by_call):
        with pynng.Pair0(tls_config=config, send_timeout=1000) as other:
            other.dial(f"tls+{url_of(one)}", block=False)
            try:
                other.send(b"hello")
                outcome.append(one.recv() == b"hello")
            except pynng.Timeout:
                outcome.append(False)
done(f"connected: by argument {outcome[0]}, by set_auth_mode {outcome[1]}", outcome == [False, True])
