"""Enforcement turns decisions into quotas: plan, guard, apply, verify. Pure code, behind the ports of `enforce.ports`.

Rooms, in reading order: policies.

In reading order: changes, guard_settings, ports, log_state, writing, guards, plan,
enforcer, in_memory, lifting.
"""
