"""WebSocket on bytes: frames, the handshake, messages. Pure."""
