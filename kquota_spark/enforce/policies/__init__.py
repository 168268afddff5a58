"""The policies: each proposes changes from the same observations, independently of the others.

In reading order: observations, context, policy, cluster_quota_policy, default_policy, lower_policy,
penalty_policy, raise_policy, proposing.
"""
