"""Quotas enforced in a proxy or gateway: the decision topic, its messages, their publisher and their followers.

In reading order: messages, topic, publisher, gate, follower.
"""
