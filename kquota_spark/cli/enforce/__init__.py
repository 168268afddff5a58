"""Commands of enforcement.

In reading order: ticket, plan_page, freeze, quotas, exempt, status_page, status, run, plans, override.
"""
