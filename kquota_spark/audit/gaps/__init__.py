"""Lines that the audit lacks: found, and written to `log_gaps`.

In reading order: lost_offsets, log_gaps.
"""
