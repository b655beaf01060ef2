"""`nngkit doc ACTION`: synchronized documents from a shell. Each action is the file of its name.

::

    nngkit doc edit minutes --store notes.sqlite --dial tcp://host:4711
    nngkit doc cat minutes --store notes.sqlite

===========================  =======================================================================
doc.py                       dispatch;  arguments.py: the options of all actions, in one table
opening.py                   the peer, document and store that the options name
edit.py                      edit: the loop between the terminal, the document and the disk
external_editor.py           edit --editor: a copy in a file, an external editor, and the merge
session.py                   edit: collaborators, and how many disks hold the edits
layout.py  keys.py           lines to rows, and bytes to keys;  caret.py: the effect of a key. All pure
view.py  screen.py           the content of the screen, pure; and curses, which draws it
differences.py  content.py   minimal edits between texts, pure; between contents of a document
values.py  folders.py        content as JSON and back;  names as paths that stay in their folder
===========================  =======================================================================
"""
