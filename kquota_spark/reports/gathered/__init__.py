"""The parts of the report, gathered from the tables.

In reading order: changes, throttled, limits.
"""
