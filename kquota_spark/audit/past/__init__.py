"""Periods of the past: backfilled, restated, compacted, removed.

In reading order: backfill, closed, maintain, recorded, restate.
"""
