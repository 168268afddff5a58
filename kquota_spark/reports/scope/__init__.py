"""What every part of a report begins with: the stretch, the cluster, and the data that it gathers.

In reading order: audit_report, broker_buckets, period, timeline_slots, report_scope.
"""
