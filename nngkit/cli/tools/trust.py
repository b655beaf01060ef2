"""`nngkit trust ACTION`: realms, passes and policies.

::

    $ nngkit trust new farm                       # realm.key, realm.pem, policy.toml, policy.sig
    $ nngkit trust pass render.w1 -o w1.pass      # 90 days
    $ nngkit trust show w1.pass
    $ nngkit trust may render.w1 call calc        # exit code 1, and the line that is missing
    $ nngkit trust revoke render.w1
    $ nngkit trust serve --listen tls+tcp://0.0.0.0:5550                  # renews passes
    $ nngkit trust invite render.w2 --issuer tls+tcp://hub:5550           # one line, valid for an hour
    $ nngkit trust invite render.w3 --pass ci.pass --issuer tls+tcp://hub:5550      # by a name that may enrol it
    $ nngkit trust accept LINE                                            # there: an own key, an own pass
    $ nngkit trust token guest.ada --gateway gateway.edge --hours 8       # of HTTP clients
    $ nngkit trust rotate --begin                                         # a new key of the realm; --use, --finish
"""

from __future__ import annotations

import argparse
import math
import signal
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, NoReturn

from nngkit.cli import options
from nngkit.cli.streams import notify
from nngkit.cli.streams.output import json_line, out, picked, utc
from nngkit.errors import BadMessage, ConfigError

if TYPE_CHECKING:
    from nngkit.trust.policy import Policy

NAME: Final = "nngkit trust"
ACTIONS: Final = {
    "new": "make a realm: its key, its certificate, a policy",
    "pass": "sign a pass for a name",
    "invite": "print a line by which another machine gets a pass of its own",
    "accept": "make a key and get a pass for it, by the line of an invitation",
    "serve": "answer invitations, renew passes, and hand out the policy",
    "rotate": "replace the realm's key, in three steps",
    "sign": "sign the policy after a change",
    "revoke": "refuse a name, or one pass by serial:NUMBER, from now on",
    "may": "print whether a name may do something, and by which role",
    "show": "print what a pass says",
    "export": "write a pass as ca.pem, cert.pem and key.pem, for programs without nngkit",
    "token": "print a token by which an HTTP client proves a name to a gateway",
    "key": "print a secret of 160 bits, from which the key of a shared realm follows",
}
STEPS: Final = {
    "begin": "make a new key, which is trusted, too",
    "use": "sign by the new key, once all passes trust it",
    "finish": "trust the old key no more, once the new one has signed all passes",
}
SCHEME: Final = "tls+tcp://"
QUESTION: Final = 65_536  # bytes of a question to the issuer
PIPES: Final = 4096  # connections at a time of an issuer: each program holds one, and asks there for what is new
LOOK: Final = 0.2  # seconds between two looks at the realm's files while questions are held
EPILOG: Final = """\
`nngkit trust ACTION --help` has the options of an action. Needs pip install 'nngkit[trust]', but for show and export.
may and show take --json.
Exit codes: 1 it may not, 2 usage, or a file that cannot be used. docs/trust.md"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the actions and their options."""
    actions = options.add_actions(parser, ACTIONS)
    for name in ("new", "pass", "invite", "serve", "rotate", "sign", "revoke", "may", "token"):
        actions[name].add_argument("--realm", metavar="FOLDER", default=".", help="of the realm's files (default: .)")
    actions["new"].add_argument("name", metavar="NAME", help="of the realm: lower-case words with dots")
    text = "of `nngkit trust key`: all its holders make the same realm"
    actions["new"].add_argument("--secret", metavar="FILE", help=text)
    own = actions["pass"]
    own.add_argument("name", metavar="NAME", help="lower-case words with dots: render.w1")
    own.add_argument("-o", "--output", metavar="FILE", help="the pass (default: NAME.pass)")
    own.add_argument("--days", type=float, metavar="N", default=90.0, help="days that it is valid (default: 90)")
    options.add_many(own, "--host", "HOST", "name or address for peers without nngkit; repeats")
    actions["invite"].add_argument("name", metavar="NAME", help="lower-case words with dots: render.w1")
    actions["invite"].add_argument("--hours", type=float, metavar="N", default=1.0, help="it is valid (default: 1)")
    text = "of a name that may enrol NAME: the issuer signs; no realm is here"
    actions["invite"].add_argument("--pass", dest="by", metavar="FILE", help=text)
    for name in ("pass", "invite"):
        actions[name].add_argument("--issuer", metavar="URL", default="", help="of `nngkit trust serve`, to renew it")
    actions["accept"].add_argument("line", metavar="LINE", help="of `nngkit trust invite`; -: from standard input")
    actions["accept"].add_argument("-o", "--output", metavar="FILE", help="the pass (default: NAME.pass)")
    actions["serve"].add_argument("--listen", metavar="URL", required=True, help="tls+tcp://HOST:PORT")
    actions["serve"].add_argument("--days", type=float, metavar="N", default=90.0, help="of new passes (default: 90)")
    steps = actions["rotate"].add_mutually_exclusive_group(required=True)
    for step, text in STEPS.items():
        steps.add_argument(f"--{step}", action="store_const", dest="step", const=step, help=text)
    actions["revoke"].add_argument("what", metavar="NAME|serial:NUMBER")
    for word, text in (("name", "of a pass"), ("right", "call, publish, ..."), ("target", "a service, a topic, ...")):
        actions["may"].add_argument(word, metavar=word.upper(), help=text)
    token = actions["token"]
    token.add_argument("name", metavar="NAME", help="lower-case words with dots: guest.ada")
    token.add_argument("--gateway", metavar="NAME", required=True, help="name in the gateway's pass")
    token.add_argument("--hours", type=float, metavar="N", default=8.0, help="it is valid (default: 8)")
    for name in ("show", "export"):
        actions[name].add_argument("file", metavar="PASS", help="a pass")
    actions["export"].add_argument("-o", "--output", metavar="FOLDER", default=".", help="(default: .)")
    for name in ("show", "may"):
        options.add(actions[name], "json")


def check(arguments: argparse.Namespace) -> None:
    """Raise ConfigError for an address where `serve` cannot listen, and for a folder that is no realm's."""
    from nngkit.trust.folder import Folder

    if not arguments.listen.startswith(SCHEME):
        raise ConfigError("--listen", f"{arguments.listen!r} is not {SCHEME}HOST:PORT", arguments.listen)
    Folder.open(arguments.realm)


def run(arguments: argparse.Namespace) -> int:
    """Run the action; return its exit code."""
    match arguments.action:
        case "show" | "export" | "accept":
            return {"show": _show, "export": _export, "accept": _accept}[arguments.action](arguments)
        case "key":
            from nngkit.trust.realm import new_secret

            out(new_secret())
            return 0
    if arguments.action == "invite" and arguments.by is not None:
        return _enrol(arguments)
    from nngkit.trust import passes
    from nngkit.trust.folder import Folder, read_text

    if arguments.action == "new":
        secret = None if arguments.secret is None else read_text(Path(arguments.secret)).strip()
        made = Folder.new(arguments.realm, arguments.name, secret)
        out(f"realm {made.realm.name} in {made.path.resolve()}: keep realm.key away from the machines that use passes")
        return 0
    folder = Folder.open(arguments.realm)
    if arguments.action in ("pass", "invite"):
        check_name(arguments.name, arguments.issuer)
    match arguments.action:
        case "pass":
            path = Path(arguments.output or f"{arguments.name}.pass")
            given = {"days": arguments.days, "hosts": arguments.host, "issuer": arguments.issuer}
            passes.write(path, folder.realm.issue(arguments.name, **given))
            out(f"{path}: {arguments.name} of {folder.realm.name}, for {arguments.days:g} days")
        case "invite":
            given = {"days": arguments.hours / 24, "issuer": arguments.issuer, "invites": True}
            out(passes.invitation(folder.realm.issue(arguments.name, **given)))
        case "token":
            from nngkit.trust.guests import bearer_token

            out(bearer_token(folder.realm, arguments.name, arguments.gateway, arguments.hours))
        case "serve":
            return _serve(arguments)
        case "rotate":
            getattr(folder, arguments.step)()
            out(f"{arguments.step}: done")
        case "sign" | "revoke":
            policy = folder.sign() if arguments.action == "sign" else folder.revoke(arguments.what)
            out(f"version {policy.version} is signed: copy policy.toml and policy.sig beside the passes")
        case _:
            return _may(arguments, folder.policy())
    return 0


def check_name(name: str, issuer: str) -> None:
    """Raise ConfigError for a name that no pass may have, or a URL that is none of an issuer."""
    from nngkit.trust.renewal import ISSUER, check_issuer

    if name == ISSUER:
        raise ConfigError("NAME", f"{ISSUER} is the name of `nngkit trust serve` itself", name)
    if issuer:
        check_issuer(issuer)


def _accept(arguments: argparse.Namespace) -> int:
    from nngkit.trust import passes, realm, renewal

    text = passes.from_invitation(sys.stdin.read() if arguments.line == "-" else arguments.line)
    invited = passes.parse(text)
    path = Path(arguments.output or f"{invited.name}.pass")
    if invited.issuer:
        key = realm.new_key()
        reply = renewal.ask(invited, renewal.Question(realm.public_pem(key)))
        text = renewal.with_reply(invited, reply, realm.pem(key))
    passes.write(path, text)
    made = passes.read(path)
    out(f"{path}: {made.name} of {made.realm}, until {utc(made.until)}")
    return 0


def _enrol(arguments: argparse.Namespace) -> int:
    """Have the issuer invite a name, by the right of a pass to enrol it."""
    from nngkit.trust import passes, renewal

    check_name(arguments.name, arguments.issuer)
    by = passes.read(arguments.by)
    by = replace(by, issuer=arguments.issuer or by.issuer)
    question = renewal.Question(by.issuer, due=False, invite=arguments.name, hours=arguments.hours)
    line = renewal.ask(by, question).invitation
    invited = passes.parse(passes.from_invitation(line))
    if (invited.name, invited.realm) != (arguments.name, by.realm):
        raise BadMessage("issuer", f"{by.issuer}: the invitation is of {invited.name} of {invited.realm}")
    out(line)
    return 0


def _serve(arguments: argparse.Namespace) -> int:
    """Answer until a signal ends the process, at any moment: what is noted is whole on disk before a reply."""
    from nngkit.errors import TimedOut
    from nngkit.protocols import Rep, Request
    from nngkit.trust.issuer import NOTHING, Issuer
    from nngkit.trust.trust import PERIOD, Trust

    check(arguments)
    issuer = Issuer(arguments.realm, arguments.days)
    issuer.refresh()
    with Rep(
        listen=arguments.listen,
        trust=Trust(issuer.own),
        recv_max_size=QUESTION,
        max_pipes=PIPES,
        handshake_timeout=5.0,
        idle_timeout=5.0,
    ) as rep:
        signal.signal(signal.SIGTERM, _end)
        out(f"issuer at {rep.address}")
        sys.stdout.flush()
        notify.ready(f"issuer at {rep.address}")
        refreshed, seen = -math.inf, issuer.look()
        held: dict[int, tuple[float, Request]] = {}  # until when, by connection: questions for what is new
        while True:
            now = time.monotonic()
            notify.alive()
            if now > refreshed + PERIOD:
                issuer.refresh()
                refreshed = now
            before, seen = seen, issuer.look()
            again = [pipe for pipe, (until, _) in held.items() if seen != before or now >= until]
            waiting = [held.pop(pipe) for pipe in again]
            with suppress(TimedOut):
                pause = 0.0 if waiting else LOOK if held else PERIOD
                waiting += [(math.inf, each) for each in rep.recv_many(timeout=pause)]
            now = time.monotonic()
            for until, request in waiting:
                pipe = request.pipe
                if pipe is None or not pipe.who:
                    continue
                reply = issuer.answer(pipe.who, pipe.serial, request.body)
                until = min(until, now + issuer.patience(request.body))
                if reply != NOTHING or now >= until:
                    request.reply(reply)
                else:
                    if pipe.id in held:
                        held[pipe.id][1].reply(NOTHING)
                    held[pipe.id] = until, request


def _end(number: int, _: FrameType | None) -> NoReturn:
    """End at a signal: the first process of a container is not ended by one that it does not handle."""
    notify.stopping()
    raise SystemExit(128 + number)


def _may(arguments: argparse.Namespace, policy: Policy) -> int:
    from nngkit.trust.policy import RIGHTS

    if arguments.right not in RIGHTS:
        raise ConfigError("RIGHT", f"no right {arguments.right!r}; there are {', '.join(RIGHTS)}", arguments.right)
    granted = policy.may(arguments.name, arguments.right, arguments.target)
    role = policy.granting(arguments.name, arguments.right, arguments.target) if granted else None
    if arguments.json:
        out(json_line({"granted": granted, "role": role and role.name, "revoked": policy.is_revoked(arguments.name)}))
    elif role is not None:
        out(f"yes, role {role.name}")
    elif policy.is_revoked(arguments.name):
        out("no: the name is revoked")
    else:
        out(f'no: a role of {arguments.name} needs {arguments.right} = ["{arguments.target}"]')
    return 0 if granted else 1


def _show(arguments: argparse.Namespace) -> int:
    from nngkit.trust import passes

    found = passes.read(arguments.file)
    fields = {**picked(found, "name realm serial"), "until": utc(found.until)}
    text = f"{found.name} of {found.realm}, until {utc(found.until)}, serial {found.serial}"
    out(json_line(fields) if arguments.json else text)
    return 0


def _export(arguments: argparse.Namespace) -> int:
    from nngkit.trust import passes

    found = passes.read(arguments.file)
    for name, text in (("ca.pem", found.authorities), ("cert.pem", found.chain), ("key.pem", found.key)):
        passes.write(Path(arguments.output) / name, text)
    out(f"{arguments.output}: ca.pem, cert.pem, key.pem")
    return 0
