"""What sockets of all patterns have in common: options, calls, close."""
