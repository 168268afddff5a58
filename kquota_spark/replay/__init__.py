"""The replay of log files, without Spark and without tables.

In reading order: log_lines, files, parsing.
"""
