"""Quotas read back from the tables.

In reading order: quota_set, rules.
"""
