"""Commands of service discovery: discoverd, discover, resolve, ask."""
