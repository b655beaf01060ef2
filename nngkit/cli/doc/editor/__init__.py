"""The editor in a terminal."""
