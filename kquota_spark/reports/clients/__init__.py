"""Clients and rules over a period: what each client used, and the effect of changes.

In reading order: seen_clients, client_usage, connections, throttle_evidence, findings, quota_drift, quota_tree,
stored_usage, judged_again, both_verdicts, what_if, bucket_owners.
"""
