"""Commands that read the tables.

In reading order: try_sample, throttled, violations, decisions, usage, connections, timeline, report, declared_tables,
exporter.
"""
