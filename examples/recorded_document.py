"""A journal of every edit of a document, from which earlier states are rebuilt.

::

    python3 examples/recorded_document.py

prints::

    the recorder has it on its disk
    recorded: 4 edits, by Ada
    after 2 of them: Minutes: apples
    after 4 of them: Minutes: apples and pears

The recorder is a peer that makes no edits. From a shell it is `nngkit record journal --stream
'notes=documents dial=tcp://127.0.0.1:4711'`; `nngkit spark run documents` does the last part for millions of edits.
"""

import tempfile

import trio

from nngkit.documents import Document, DocumentPeer
from nngkit.journal import Recorder, read
from nngkit.recording import DocumentRecorder, parse


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = f"{folder}/journal"
        async with (
            Recorder(journal) as recorder,
            DocumentRecorder(recorder, "notes", listen="tcp://127.0.0.1:0") as recording,
            DocumentPeer(dial=recording.addresses, name="Ada") as ada,
        ):
            minutes = ada.open("minutes")
            await minutes.synced(1, timeout=10)  # it is connected: from now on each edit is a record
            for word in ("Minutes: ", "apples", " and ", "pears"):
                minutes.text("body").insert(len(minutes.text("body")), word)
            await minutes.synced(1, timeout=10)
            print("the recorder has it on its disk")

        edits = [parse(record) for record in read(journal, topics="notes", distinct=True)]
        authors = {dict(record.headers)["from"].decode() for record in read(journal)}
        print(f"recorded: {len(edits)} edits, by {', '.join(authors)}")
        for many in (2, 4):
            again = Document("minutes")
            for edit in edits[:many]:
                again.merge(edit.update, None)
            print(f"after {many} of them: {again.text('body')}")


trio.run(main)
