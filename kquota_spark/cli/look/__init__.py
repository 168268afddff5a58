"""Commands that read the tables.

In reading order: try_sample, throttled, violations, decisions, usage, timeline, report, declared_tables, exporter.
"""
