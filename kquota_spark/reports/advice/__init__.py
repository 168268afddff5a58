"""What to do: raises, defaults, removals, each with its figures.

In reading order: quota_command, throttle_causes, raise_reasons, least_values, headroom, recommended_raises,
tenant_advice, recommendations, unprotected.
"""
