"""The streams of a command: stdin, stdout, stderr, programs that it starts, signals."""
