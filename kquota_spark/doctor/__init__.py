"""What `kquota doctor` asks: of the tables after a run, of the servers before the first.

In reading order: counts, checks, preflight.
"""
