"""Clients and rules over a stretch: who used what, what changes would do.

In reading order: seen_clients, throttle_evidence, findings, quota_drift, quota_tree, stored_usage, what_if.
"""
