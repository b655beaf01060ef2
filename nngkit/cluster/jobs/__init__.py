"""Jobs: the host's table and queue, and the crew of each node that runs them. Pure."""
