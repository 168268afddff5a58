"""Quota nodes of ZooKeeper, read and written as a broker does.

In reading order: nodes, writes.
"""
