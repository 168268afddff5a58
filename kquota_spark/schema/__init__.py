"""Every table and column, declared once, for Spark, Arrow and people.

In reading order: columns, key_columns, broker_tables, quota_tables, gap_tables, shadow_tables, cause_table,
day_tables, tables, sql_engines, units, harm, figures, decision_columns.
"""
