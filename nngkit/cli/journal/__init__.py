"""Commands on journals: record, replay, journal, spark."""
