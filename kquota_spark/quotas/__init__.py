"""The quotas of clusters: read, written, followed into the tables, and read back from there.

In reading order: any_file, admin_cluster, zookeeper_cluster, backends, stored, sources, leaders, ledger,
watched_sources, watch.
"""
