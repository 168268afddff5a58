"""Enforcement: decisions become quotas. Plan, guard, apply, verify; pure, behind the ports of `enforce.ports`.

Rooms, in reading order: policies.

In reading order: changes, guard_settings, ports, log_state, writing, guards, plan,
enforcer, in_memory, lifting.
"""
