"""Initial content: two peers that know nothing of each other put the same template into a document, which has it once.

::

    python3 examples/initial_content.py

prints::

    before they meet, ada: # Minutes
    before they meet, grace: # Minutes
    after they have met, both: # Minutes
    an inserted template instead: # Minutes# Minutes

`Document.seed` gives equal content the same ids at every peer, so it is one edit that both have. Text that each peer
inserts for itself is two edits, and both stay.
"""

import trio

from nngkit.documents import DocumentPeer

TEMPLATE = {"body": "# Minutes"}
PATIENCE = 15  # seconds


async def main() -> None:
    async with DocumentPeer(listen="tcp://127.0.0.1:0") as ada, DocumentPeer() as grace:
        peers = {"ada": ada, "grace": grace}
        for name, peer in peers.items():
            seeded = peer.open("seeded")
            seeded.seed(TEMPLATE)
            peer.open("inserted").text("body").insert(0, TEMPLATE["body"])
            print(f"before they meet, {name}: {seeded.text('body')}")
        inserted = grace.open("inserted")
        changes = inserted.changes()
        grace.dial(ada.address)
        with trio.fail_after(PATIENCE):
            await grace.open("seeded").joined()
            while str(inserted.text("body")) == TEMPLATE["body"]:
                await anext(changes)
        print(f"after they have met, both: {grace.open('seeded').text('body')}")
        print(f"an inserted template instead: {inserted.text('body')}")


trio.run(main)
