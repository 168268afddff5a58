"""Enforcement: decisions become quotas. Plan, guard, apply, verify; pure, behind the ports of `enforce.ports`."""
