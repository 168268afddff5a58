"""The quotas of clusters: read, written, followed into the tables, and read back from there.

In reading order: admin_cluster, zookeeper_cluster, stored, sources, leaders, ledger, watched_sources, watch.
"""
