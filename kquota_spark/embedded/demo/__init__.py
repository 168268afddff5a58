"""`make demo`.

In reading order: enforcement, summary, load, plan.
"""
