"""CRDT engines: the interface (`interface.py`), Yjs on pycrdt (`yjs.py`), and text positions (`codepoints.py`)."""
