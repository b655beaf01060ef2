"""The data source and sink `nng`: plan, positions, tasks."""
