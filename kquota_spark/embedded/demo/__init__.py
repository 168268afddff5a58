"""`make demo`.

In reading order: commands, enforcement, jmx, summary, live, load, plan.
"""
