"""Quotas enforced in a proxy or gateway: the decision topic, its messages, who publishes and who follows them.

In reading order: messages, topic, publisher, gate, follower.
"""
