"""What `kquota doctor` asks: of the tables after a run, of the servers and stores before the first.

In reading order: counts, checks, store_trial, spark_trial, preflight.
"""
