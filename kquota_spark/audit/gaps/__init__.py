"""Finds lines that the audit lacks and writes them to `log_gaps`; finds samples of JMX that it lacks.

In reading order: lost_offsets, gap_rows, log_gaps, gap_watch, lost_samples.
"""
