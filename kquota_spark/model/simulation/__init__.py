"""Simulation of a broker and its clients, event by event: the effect of quotas on traffic. Gateways charge by it too.

In reading order: clients, quota_manager, throttled_channel, broker.
"""
