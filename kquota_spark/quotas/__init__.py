"""The sources of quotas: read once, or followed into the tables.

In reading order: cluster_quotas, zookeeper_quotas, stored, sources, leaders, ledger, watched_sources, watch.
"""
