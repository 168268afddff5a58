"""Stretches of the past: backfilled, restated, compacted, removed.

In reading order: backfill, closed, maintain, restate.
"""
