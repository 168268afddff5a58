"""Lines that the audit lacks: found, and written to `log_gaps`; and samples of JMX that it lacks.

In reading order: lost_offsets, gap_rows, log_gaps, gap_watch, lost_samples.
"""
