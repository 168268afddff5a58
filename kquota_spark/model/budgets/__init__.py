"""Error budgets of throttling: how much of it an objective allows, and how fast it is spent.

In reading order: objectives, seconds, budgets.
"""
