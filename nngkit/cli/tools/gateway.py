"""`nngkit gateway`: an HTTP interface to services, topics and jobs.

::

    $ nngkit gateway --http 127.0.0.1:8080 --subscribe tcp://127.0.0.1:7000
    http://127.0.0.1:8080/
    $ curl -d '{"n": 21}' -H 'Content-Type: application/json' http://127.0.0.1:8080/call/calc/double
    42
    $ curl -N 'http://127.0.0.1:8080/sub?topic=weather.&last=1'
"""

from __future__ import annotations

import argparse
import gc
from functools import partial
from typing import TYPE_CHECKING, Final

from nngkit.cli import door, options
from nngkit.cli.cluster.node_options import cluster_name
from nngkit.cli.streams import notify
from nngkit.cli.streams.stderr import say
from nngkit.cli.tls import add_tls, tls_or_variables
from nngkit.cli.tokens import joining
from nngkit.errors import ConfigError

if TYPE_CHECKING:  # --help loads no event loop
    from nngkit.cluster import Member
    from nngkit.discovery.settings import ClientSettings
    from nngkit.protocols import TLS
    from nngkit.web.server import Server

NAME: Final = "nngkit gateway"
EPILOG: Final = """\
With --trust each request needs a token, of `nngkit trust token`, and is answered by the rights of its name. Without,
the gateway stays on this machine. --http-cert and --http-key are for HTTPS, --cert and --key for services.
Exit codes: 2 usage, 3 cannot listen, 130 interrupted (SIGINT), 143 terminated (SIGTERM). docs/gateway.md"""
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
DESCRIPTORS: Final = 64  # besides those of the connections


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    here = ("127.0.0.1", 8080)
    text = "address for HTTP (default: 127.0.0.1:8080)"
    options.add_value(parser, "--http", "[HOST:]PORT", text, type=options.host_port, default=here)
    options.add(parser, "http-name")
    parser.add_argument("--http-cert", metavar="FILE", help="HTTPS: certificate, with its chain (PEM)")
    parser.add_argument("--http-key", metavar="FILE", help="HTTPS: key of the certificate (PEM)")
    text = "pages of this site may ask, as https://example.org; * for all; repeatable"
    options.add_many(parser, "--allow-origin", "ORIGIN", text)
    text = "publisher whose messages GET /sub streams; may be repeated"
    options.add_address(parser, "--subscribe", text, many=True)
    options.add_address(parser, "--publish", "publish here what POST /pub brings")
    parser.add_argument("--cluster", type=cluster_name, metavar="CLUSTER", help="submit jobs to this cluster")
    text = "address of a node of the cluster; may end in #token=TOKEN (default: ask the daemons)"
    options.add_address(parser, "--dial", text, many=True)
    options.add_token(parser, "the cluster's")
    options.add(parser, "daemon", "prefer")
    parser.add_argument("--journal", metavar="FOLDER|URI", help="journal whose topics GET /topics reads")
    parser.add_argument("--streams", metavar="FOLDER", help="journal of the streams that clients create below /streams")
    options.add_seconds(parser, "--long-poll", 20.0, "seconds that a read of a stream waits")
    options.add_many(parser, "--json-codec", "NAME", "the codec of this service is JSON, not CBOR; may be repeated")
    options.add_seconds(parser, "--timeout", 5.0, "seconds of a call whose client names none")
    options.add_seconds(parser, "--most-timeout", 60.0, "seconds of a call at most")
    options.add_seconds(parser, "--drain-timeout", 10.0, "seconds that requests in progress may take at the end")
    options.add_whole(parser, "--max-body", 0, 1 << 30, "bytes of a request's body", default=1 << 20, metavar="BYTES")
    options.add_whole(parser, "--connections", 1, 1_000_000, "HTTP connections at a time", default=4096)
    options.add_whole(parser, "--from-one", 1, 1_000_000, "HTTP connections of one address (default: any)")
    options.add_whole(parser, "--rate", 1, 1_000_000, "requests a second of one name or address (default: any)")
    options.add(parser, "max-size")
    add_tls(parser, variables=True)


def check(arguments: argparse.Namespace) -> tuple[ClientSettings, TLS | None, TLS | None]:
    """Return the settings, and TLS towards services and of HTTP. Raises ConfigError for what does not go together."""
    from nngkit.discovery.settings import ClientSettings

    if arguments.dial and not arguments.cluster:
        raise ConfigError("--dial", "needs --cluster")
    for one, other in (("http_cert", "http_key"), ("http_key", "http_cert")):
        if getattr(arguments, one) and not getattr(arguments, other):
            raise ConfigError(f"--{one.replace('_', '-')}", f"requires --{other.replace('_', '-')}")
    settings = ClientSettings.from_environment(daemons=tuple(dict.fromkeys(arguments.daemon or ())))
    there = [*settings.daemons, *arguments.subscribe, *arguments.dial]
    tls = tls_or_variables(arguments, settings.certificates, "dial", *there)
    secure = _https(arguments)
    _check_guarded(arguments, tls, secure)
    return settings, tls, secure


def run(arguments: argparse.Namespace) -> int:
    """Serve until a signal."""
    settings, tls, secure = check(arguments)
    _admit(arguments.connections + DESCRIPTORS)
    import trio

    return trio.run(_run, arguments, settings, tls, secure)


async def _run(arguments: argparse.Namespace, settings: ClientSettings, tls: TLS | None, secure: TLS | None) -> int:
    from contextlib import AsyncExitStack

    import trio

    from nngkit.background import Background
    from nngkit.cli.silence import hint_if
    from nngkit.cli.streams.signals import until_signal
    from nngkit.web.door import AGE
    from nngkit.web.gateway import Gateway
    from nngkit.web.server import serve

    server: Server | None = None
    limit = trio.CancelScope()

    def drain() -> bool:
        if server is None:
            return False
        server.drain()
        limit.deadline = trio.current_time() + arguments.drain_timeout
        return True

    async def work() -> None:
        with limit:
            await serve_gateway()

    async def serve_gateway() -> None:
        nonlocal server
        async with AsyncExitStack() as opened:
            node = None
            if arguments.cluster is not None:
                node = await opened.enter_async_context(_node(arguments, settings, tls))
            metrics, text = door.registry(NAME, () if node is None else (node,))
            gateway = Gateway(
                daemons=settings.daemons,
                domain=settings.domain,
                subscribe=arguments.subscribe,
                publish=arguments.publish,
                node=node,
                timeout=arguments.timeout,
                most_timeout=arguments.most_timeout,
                body=arguments.max_body,
                reply=arguments.max_size,
                rate=arguments.rate,
                connections=arguments.connections,
                from_one=arguments.from_one,
                json=arguments.json_codec,
                prefer=settings.prefer if arguments.prefer is None else options.zones(arguments.prefer),
                journal=arguments.journal,
                streams=arguments.streams,
                long_poll=arguments.long_poll,
                metrics=None if text is None else partial(text, age=AGE),
                tls=tls,
            )
            await opened.enter_async_context(gateway)
            tasks = await opened.enter_async_context(Background())
            tasks.start(hint_if, lambda: not gateway.fresh, NAME, settings.daemons, "req", True)
            nursery = await opened.enter_async_context(trio.open_nursery())
            host, port = arguments.http
            serving = partial(
                serve,
                gateway,
                host=host,
                port=port,
                names=arguments.http_name,
                origins=arguments.allow_origin,
                tls=secure,
                limits=gateway.limits(),
            )
            server = await nursery.start(serving)
            for each in (gateway, server):
                metrics.watch(each)
            gc.collect()
            gc.freeze()  # what lives as long as the process need not be looked at again and again
            print(server.url, flush=True)
            notify.ready(f"answers HTTP at {server.url}")
            if gateway.address is not None:
                say(NAME, f"publishes at {gateway.address}")  # the server runs on

    return await until_signal(work, drain)


def _node(arguments: argparse.Namespace, settings: ClientSettings, tls: TLS | None) -> Member:
    from nngkit.cluster import Member

    token, dial = joining(arguments.dial, arguments.token, "--dial")
    daemons = () if dial else settings.daemons
    return Member(arguments.cluster, slots=0, dial=dial, daemons=daemons, token=token, tls=tls)


def _https(arguments: argparse.Namespace) -> TLS | None:
    from nngkit.protocols import TLS

    if arguments.http_cert is None:
        return None
    secure = TLS(cert=arguments.http_cert, key=arguments.http_key)
    try:
        secure.context(server=True)
    except ConfigError as error:
        raise ConfigError("--http-cert", f"{arguments.http_cert}, {arguments.http_key}: {error.why}") from error
    return secure


def _check_guarded(arguments: argparse.Namespace, tls: TLS | None, secure: TLS | None) -> None:
    """Raise ConfigError for an HTTP listener that other machines can reach if nothing keeps strangers out."""
    from nngkit.trust import OPEN, chosen

    host, port = arguments.http
    if host.lower() in LOOPBACK:
        return
    trust = chosen(None, tls)
    if trust is None:
        why = "other machines can reach it, and nothing keeps strangers out: give a --trust, or say --trust open"
        raise ConfigError("--http", f"{host}:{port}: {why}")
    if trust is not OPEN and secure is None:
        why = "tokens would be read on their way: give --http-cert and --http-key"
        raise ConfigError("--http", f"{host}:{port}: {why}")


def _admit(descriptors: int) -> None:
    """Raise the limit of open files as far as the system lets this process."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = descriptors if hard == resource.RLIM_INFINITY else min(descriptors, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
