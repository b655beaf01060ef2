"""Connections of a socket, and the messages between them and its callers."""
