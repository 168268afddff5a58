"""The metrics of `kquota exporter` for each bucket.

In reading order: bucket_refresh, shown_buckets, metrics, judged_places, tables.
"""
