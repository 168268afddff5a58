"""Commands that run a part of the product.

In reading order: backfill, cluster, collect, maintain, restate, ship, topics, watch.
"""
