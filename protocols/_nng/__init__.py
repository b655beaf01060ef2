"""NNG's byte streams: connecting, accepting, TLS; names and addresses."""
