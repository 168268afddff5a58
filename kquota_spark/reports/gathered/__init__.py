"""The parts of the report, gathered from the tables.

In reading order: capacity, change_effects, changes, heat, hurt, lines, period_buckets, skew, talkers,
throttle_pictures, gathering, tenants.
"""
