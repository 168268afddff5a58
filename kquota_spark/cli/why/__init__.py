"""`kquota why`: the causes of a delay, and who slowed whom.

In reading order: page, command, column.
"""
