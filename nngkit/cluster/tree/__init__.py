"""The tree of nodes: parents and children, members, paths. Pure."""
