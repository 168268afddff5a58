"""Right sizes in the report: those of the buckets of its period, their section, and the demand of closed dates.

In reading order: period_sizes, sizes_section, demand_roll_up.
"""
