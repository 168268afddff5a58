"""Commands of enforcement.

In reading order: plan_page, freeze, enforcement, exempt, status, plans, override.
"""
