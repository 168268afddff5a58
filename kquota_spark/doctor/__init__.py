"""The checks of `kquota doctor`: of the tables after a run, and of servers and stores before the first run.

In reading order: counts, shadow_checks, checks, store_trial, spark_trial, preflight.
"""
