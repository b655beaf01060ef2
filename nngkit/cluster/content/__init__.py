"""Documents and shared objects of a cluster. Pure."""
