"""Recorded requests under other quotas: at their recorded times, and as clients that wait would send them.

In reading order: open_loop, shadow_bucket, clocks, meters, closed_loop, plain_loop, paces, both_sides, tried, reach.
"""
