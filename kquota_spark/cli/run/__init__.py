"""Commands that run a part of the product.

In reading order: cluster, past, to_kafka, topics, watch.
"""
