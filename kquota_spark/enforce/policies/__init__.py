"""The policies: each proposes changes from the same observations, independently of the others.

In reading order: observations, scene, policy, cluster_quota_policy, default_policy, lower_policy,
penalty_policy, raise_policy, proposing.
"""
