"""Two sets of quotas held against each other, and one against what was declared or seen.

In reading order: drift, observed_clients, quota_diff, quota_tree.
"""
