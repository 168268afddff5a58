"""Quota nodes of ZooKeeper, read and written like a broker does.

In reading order: nodes, writes.
"""
