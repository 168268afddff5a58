"""`kquota why`: the causes of a delay, and who slowed whom. `kquota slow`: who slowed whom on a broker.

In reading order: slow_page, page, command, column, slow.
"""
