"""What to do: raises, defaults, removals, each with its figures.

In reading order: quota_command, recommended_raises, tenant_advice, recommendations, unprotected.
"""
