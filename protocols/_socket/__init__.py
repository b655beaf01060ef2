"""Common parts of the sockets of all patterns: options, calls, close."""
