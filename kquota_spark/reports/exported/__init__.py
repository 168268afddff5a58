"""The metrics of `kquota exporter` for each bucket.

In reading order: bucket_looks, shown_buckets, metrics, judged_places, tables.
"""
