"""Commands that read the tables.

In reading order: try_sample, violations, decisions, throttled, shadow, usage, connections, evidence_page, evidence,
timeline_page, timeline, report, declared_tables, exporter.
"""
