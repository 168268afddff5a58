"""What a streaming query leaves beside its tables, and what its tasks judge by.

In reading order: checkpoints, driver_lock, notes, lease_table, driver_lease, runs, pinned, known, lineage.
"""
