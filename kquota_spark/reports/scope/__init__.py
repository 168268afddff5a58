"""What every part of a report begins with: the stretch, the cluster, and the data that it gathers.

In reading order: amount_rates, audit_report, bucket_key, period, timeline_slots, report_scope.
"""
