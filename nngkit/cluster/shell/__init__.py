"""The side effects of an endpoint: clock, links, disk and tasks, as its node decides."""
