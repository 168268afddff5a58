"""A broker and its clients, event by event: what quotas do to traffic. Also what a gateway charges by.

In reading order: clients, quota_manager, throttled_channel, broker.
"""
