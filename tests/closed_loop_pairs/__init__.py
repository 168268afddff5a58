"""The closed loop of `kquota whatif` against real brokers: the same clients under two limits.

In reading order: produces, plan, run, prediction, edits, __main__.
"""
