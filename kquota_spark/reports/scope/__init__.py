"""The base of every part of a report: the period, the cluster, and the data that it gathers.

In reading order: shared_rows, broker_buckets, cluster_command, period, echoes, timeline_slots, report_scope.
"""
