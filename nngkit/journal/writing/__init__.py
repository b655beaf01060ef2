"""A partition's logs and segments: appending, sealing, merging, repair."""
