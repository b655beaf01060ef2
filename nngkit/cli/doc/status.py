"""`nngkit doc status`: peers, their documents, durability, and counts of losses and repairs.

It joins as a peer itself: counters are not available from others, so it counts its own messages. Named documents are
opened, and so transferred completely; without names only the documents' names are listed.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict
from typing import Any, Final

import trio

from nngkit.cli.doc.opening import in_trio, meets_others, opened, stored
from nngkit.cli.streams.output import columns, json_line, out, picked, utc
from nngkit.cli.streams.stderr import escaped
from nngkit.documents import Document, DocumentPeer
from nngkit.errors import ConfigError, StoreDamaged, TimedOut

ASKED: Final = 2.0  # seconds for peers to report durability
COUNTERS: Final = "sent received edits delivered duplicates held gaps requests failed refused"


def run(arguments: argparse.Namespace) -> int:
    """Print the status, once or repeatedly."""
    if arguments.store is None and not meets_others(arguments) and not arguments.listen:
        raise ConfigError("--store", "there is nothing to show: give a store, or peers (--join, --dial)")
    kept = None if arguments.store is None else _kept(arguments)

    async def work() -> None:
        async with opened(arguments) as peer:
            if meets_others(arguments):
                await peer.wait_for_peers(1, arguments.timeout)
            damaged = {each["document"] for each in kept["damaged"]} if kept is not None else ()
            documents = [peer.open(name) for name in arguments.names if name not in damaged]
            while True:
                fields = await _look(peer, documents, kept, arguments)
                out(json_line(fields) if arguments.json else _text(fields))
                if arguments.interval is None:
                    return
                await trio.sleep(arguments.interval)

    return in_trio(work)


def _kept(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the status of the store, read before the peer opens it."""
    documents, damaged = [], []
    with stored(arguments.store) as store:
        for name in store.names():
            try:
                loaded, versions = store.load(name), store.versions(name)
            except StoreDamaged as damage:
                damaged.append({"document": name, "why": str(damage)})
                continue
            documents.append(
                {
                    "document": name,
                    "edits": sum(loaded.versions.values()),
                    "streams": len(loaded.versions),
                    "snapshot": loaded.size,
                    "log": loaded.log,
                    "versions": len(versions),
                }
            )
        return {"path": store.path, "origin": store.origin.hex(), "documents": documents, "damaged": damaged}


async def _look(
    peer: DocumentPeer, documents: list[Document], kept: dict[str, Any] | None, arguments: argparse.Namespace
) -> dict[str, Any]:
    looked = []
    for document in documents:
        synced = False
        if peer.peers:
            with trio.move_on_after(arguments.timeout):
                try:
                    await document.joined(arguments.timeout)
                    synced = True
                except TimedOut:
                    pass
        others = [str(other.stream) for other in peer.peers if document.name in other.documents]
        looked.append(
            {
                "document": document.name,
                "digest": document.digest().hex(),
                "roots": {root: {"kind": _kind(value), "size": len(value)} for root, value in document.plain().items()},
                "synced": synced,
                "peers": others,
                "disks": await disks(document, sum(other.askable for other in peer.peers)) if synced else 0,
                "here": [
                    str(state.get("user", {}).get("name", "?")) if isinstance(state.get("user"), dict) else "?"
                    for state in document.awareness.states.values()
                ],
            }
        )
    return {
        "time": utc(time.time()),
        "me": {
            "stream": str(peer.me),
            "name": peer.name,
            "addresses": list(peer.addresses),
            "repair": list(peer.repair_addresses),
        },
        "store": kept,
        "peers": [
            {
                "stream": str(other.stream),
                **picked(other, "name address round_trip askable relay"),
                "documents": sorted(other.documents),
            }
            for other in peer.peers
        ],
        "documents": looked,
        "counters": asdict(peer.stats),
        "refusals": [
            {"time": utc(one.when), "peer": one.peer, "what": one.what, "why": one.why} for one in peer.refusals
        ],
    }


def _kind(value: object) -> str:
    return "text" if isinstance(value, str) else "array" if isinstance(value, list) else "map"


async def disks(document: Document, most: int, within: float = ASKED) -> int:
    """Return the number of peers, up to `most`, that report all local edits durable within `within` seconds."""
    found = 0
    with trio.move_on_after(within):
        for count in range(1, most + 1):
            try:
                await document.synced(count, within)
            except TimedOut:
                break
            found = count
    return found


def _text(fields: dict[str, Any]) -> str:
    me = fields["me"]
    parts = [f"{fields['time']}  {me['name']} {me['stream']} {' '.join(me['addresses'])}".rstrip()]
    if fields["store"] is not None:
        rows = [
            (each["document"], *(str(each[name]) for name in ("edits", "streams", "snapshot", "log", "versions")))
            for each in fields["store"]["documents"]
        ]
        parts.append(columns(("STORED", "EDITS", "STREAMS", "SNAPSHOT", "LOG", "VERSIONS"), rows))
        parts += [f"damaged: {each['document']}: {each['why']}" for each in fields["store"]["damaged"]]
    if fields["peers"]:
        rows = [
            (
                each["name"] or each["stream"],
                each["address"] or "-",
                f"{each['round_trip'] * 1000:.1f} ms",
                " ".join(word for word in ("askable", "relay") if each[word]) or "-",
                " ".join(each["documents"]) or "-",
            )
            for each in fields["peers"]
        ]
        parts.append(columns(("PEER", "ADDRESS", "ROUND TRIP", "IS", "DOCUMENTS"), rows))
    if fields["documents"]:
        rows = [
            (
                each["document"],
                " ".join(f"{root} {is_['kind']} {is_['size']}" for root, is_ in each["roots"].items()) or "-",
                "yes" if each["synced"] else "no",
                str(each["disks"]),
                each["digest"][:8],
                ", ".join(each["here"]) or "-",
            )
            for each in fields["documents"]
        ]
        parts.append(columns(("DOCUMENT", "CONTENT", "IN SYNC", "DISKS", "DIGEST", "WHO"), rows))
    counted = fields["counters"] | {"refused": sum(fields["counters"]["refused"].values())}
    parts.append("  ".join(f"{name} {counted[name]}" for name in COUNTERS.split()))
    refused = (f"{one['time']} {one['what']} from {one['peer']}: {one['why']}" for one in fields["refusals"])
    parts += [f"refused: {escaped(each)}" for each in refused]
    return "\n".join(parts)
