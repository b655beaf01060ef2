"""`nngkit doc ACTION`: synchronized documents from a shell. Each action is the file of its name.

::

    nngkit doc edit minutes --store notes.sqlite --dial tcp://host:4711
    nngkit doc cat minutes --store notes.sqlite

===========================  =======================================================================
doc.py                       dispatch;  arguments.py: the options of all actions, in one table
opening.py                   the peer, document and store that the options name
edit.py                      edit: the choice of an editor, and what is left when it ends
external_editor.py           edit --editor: a copy in a file, an external editor, and the merge
screen.py                    edit: keys and screen, by prompt_toolkit (the extra `editor`), and the document
session.py                   edit: collaborators, and how many disks hold the edits
rows.py                      edit: a text as rows of a screen, and the effect of a key, pure
differences.py  content.py   minimal edits between texts, pure; between contents of a document
values.py  folders.py        content as JSON and back;  names as paths that stay in their folder
===========================  =======================================================================
"""
