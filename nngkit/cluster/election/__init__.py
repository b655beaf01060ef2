"""Voters: the choice of the host, and the log that they replicate. Pure."""
