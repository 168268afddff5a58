"""The metrics of `kquota exporter` for each bucket and each owner.

In reading order: bucket_refresh, shown_buckets, metrics, judged_places, owner_metrics, tables.
"""
