"""Commands of enforcement.

In reading order: ticket, plan_page, freeze, quotas, exempt, status, run, plans, override.
"""
