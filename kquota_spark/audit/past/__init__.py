"""Stretches of the past: backfilled, restated, compacted, removed.

In reading order: agreement_rollup, backfill, closed, maintain, restate.
"""
