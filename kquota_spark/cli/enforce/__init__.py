"""Commands of enforcement.

In reading order: plan_page, freeze, quotas, exempt, status, plans, override.
"""
