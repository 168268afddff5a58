"""The parts of the report, gathered from the tables.

In reading order: throttled, limits.
"""
