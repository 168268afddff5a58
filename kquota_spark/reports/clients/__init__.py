"""Clients and rules over a stretch: who used what, what changes would do.

In reading order: bucket_traffic, seen_clients, clients_beside_rules, throttle_evidence, findings, quota_drift,
quota_tree, recent_use, stored_usage, what_if.
"""
