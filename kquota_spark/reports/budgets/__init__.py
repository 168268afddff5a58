"""Error budgets from the tables: the active and the throttled seconds of each owner, at once and as tables grow.

In reading order: grouping, own_seconds, bucket_seconds, kept_days, day_roll_up, period_seconds, owned_budgets,
following.
"""
