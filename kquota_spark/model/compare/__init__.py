"""Comparison of two sets of quotas, and of one set with the declared quotas or the clients that were seen.

In reading order: drift, observed_clients, quota_diff, quota_tree, tried_brokers.
"""
