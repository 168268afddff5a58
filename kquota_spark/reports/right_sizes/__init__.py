"""Right sizes in the report: those of the buckets of its period, and their section.

In reading order: period_sizes, sizes_section.
"""
