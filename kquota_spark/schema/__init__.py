"""Every table and column, declared once, for Spark, Arrow and people.

In reading order: columns, key_columns, agreement_tables, broker_tables, quota_tables, enforcement_tables, gap_tables,
harm, jmx_tables, tables, version.
"""
