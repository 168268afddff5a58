"""What to do: raises, defaults, removals, each with its figures.

In reading order: quota_command, throttle_causes, least_values, headroom, raise_reasons, recommended_raises,
tenant_advice, recommendations, unprotected.
"""
