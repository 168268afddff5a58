"""Quotas: keys, entities, levels, rules over time, and which rule governs a client (KIP-13, KIP-55, KIP-257).

In reading order: names, entities, quota_types, rules, enabled_types, quota_set, principals, resolve, mbean_names,
quota_callback, group_callbacks, ip_quotas.
"""
