"""The edge to ZooKeeper: clients, calls with a time limit, and the nodes of quotas.

In reading order: client, entities, mirror.
"""
