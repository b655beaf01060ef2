"""Documents that peers edit at once, and that all hold the same of: a CRDT over BUS, repair over REQ/REP."""
