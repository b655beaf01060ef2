"""`nngkit doc link`: print a link by which a guest edits or views documents in a browser, for some hours."""

from __future__ import annotations

import argparse

from nngkit.cli.streams.output import out
from nngkit.trust.folder import Folder
from nngkit.web.server import link


def run(arguments: argparse.Namespace) -> int:
    """Print the link."""
    realm = Folder.open(arguments.realm).realm
    out(link(arguments.url, guest=arguments.guest, hours=arguments.hours, realm=realm, doc=arguments.document))
    return 0
