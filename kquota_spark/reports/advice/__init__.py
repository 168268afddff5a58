"""What to do: raises, defaults, removals, each with its figures.

In reading order: quota_command, raise_card, recommended_defaults, recommended_raises, recommended_removals,
tenant_advice, recommendations, unprotected.
"""
