"""Enforcement against a real cluster: its log, leases and switch, and the job that checks repeatedly.

Rooms, in reading order: edges.

In reading order: right_sizes, input, exempt_file, policies, situation, assembly, job.
"""
