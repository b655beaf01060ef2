"""Questions to all services, and their answers."""
