"""Enforcement in a closed loop: the model's broker and clients, policies, faults, and what must hold all the same.

In reading order: scenario, policies, invariants, troubled_ports, closed_loop, __main__.
"""
