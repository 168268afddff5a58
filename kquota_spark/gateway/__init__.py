"""Quotas enforced in a proxy or gateway, by the decision topic.

In reading order: gate, follower.
"""
