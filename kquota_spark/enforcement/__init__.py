"""Enforcement at work: its log, leases, switch, targets, and the job that looks again and again.

Rooms, in reading order: edges.

In reading order: input, exempt_file, policies, situation, assembly, job.
"""
