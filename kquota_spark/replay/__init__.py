"""The replay of log files, without Spark.

In reading order: log_lines, files, rows.
"""
