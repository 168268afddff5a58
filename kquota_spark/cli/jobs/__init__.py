"""Commands that start a job or a part of the product.

In reading order: audit, cluster, demo, init, notify, past, to_kafka, topics, watch.
"""
