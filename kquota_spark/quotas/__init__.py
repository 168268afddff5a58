"""Where quotas come from: read at once, or followed into the tables.

Rooms, in reading order: stored.

In reading order: admin_quotas, cluster_quotas, leaders, ledger, sources, watched_sources, watch, zookeeper_quotas.
"""
