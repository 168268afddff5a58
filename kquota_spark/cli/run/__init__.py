"""Commands that run a part of the product.

In reading order: cluster, notify, past, to_kafka, topics, watch.
"""
