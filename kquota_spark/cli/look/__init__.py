"""Commands that look at the tables.

In reading order: declared_tables, exporter, decisions, violations, usage, report, timeline.
"""
