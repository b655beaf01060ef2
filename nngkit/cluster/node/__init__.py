"""One node: greets its neighbours and joins tree, election, jobs and content. Pure."""
