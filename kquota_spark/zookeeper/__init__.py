"""The edge to ZooKeeper: clients, calls with a time limit, the nodes of quotas, and those of an enforcer.

In reading order: client, own_nodes, entities, mirror.
"""
