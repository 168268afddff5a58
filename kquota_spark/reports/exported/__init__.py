"""What `kquota exporter` says of each bucket.

In reading order: bucket_looks, shown_buckets, metrics, judged_places, tables.
"""
