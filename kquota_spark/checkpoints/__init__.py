"""The state of a streaming query besides its tables, and the data that its tasks judge by.

In reading order: checkpoints, driver_lock, notes, lease_table, driver_lease, runs, noted_pins,
shadow_file, pinned, known, lineage.
"""
