"""Commands that look at the tables.

In reading order: declared_tables, exporter, usage, read, report, timeline.
"""
