"""The commands of clusters: host, join, submit, cluster."""
