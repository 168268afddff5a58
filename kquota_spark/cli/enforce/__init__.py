"""Commands of enforcement.

In reading order: actor, plan_page, enforcement, exempt, freeze, simulate, status, plans, override.
"""
