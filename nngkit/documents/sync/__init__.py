"""Synchronization between peers: BUS for new edits, REQ/REP for repair. Knows no disk and no CRDT."""
